"""A Qwen3.5 of random weights: three layers of four attend linearly: a sequence has a state, not keys."""

from __future__ import annotations

from pathlib import Path

from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from tests.small.chatting import chatting, lively


def build(folder: Path) -> None:
    tokens = chatting()
    config = Qwen3_5TextConfig(
        vocab_size=len(tokens),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
    lively(Qwen3_5ForCausalLM(config), tokens).save_pretrained(folder)
    tokens.save_pretrained(folder)
