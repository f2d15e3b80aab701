"""A Qwen3.5 of random weights that sees: three layers of four attend linearly."""

from __future__ import annotations

from pathlib import Path

from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

from tests.small.tiny_qwen3_vl import save

LINEAR: dict[str, object] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}


def build(folder: Path) -> None:
    save(folder, Qwen3_5ForConditionalGeneration, Qwen3_5Config, LINEAR, {})
