"""A Qwen3 of random weights: grouped heads, norms of queries and keys."""

from __future__ import annotations

from pathlib import Path

from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.small.chatting import chatting, lively


def build(folder: Path) -> None:
    tokens = chatting()
    config = Qwen3Config(
        vocab_size=len(tokens),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
    lively(Qwen3ForCausalLM(config), tokens).save_pretrained(folder)
    tokens.save_pretrained(folder)
