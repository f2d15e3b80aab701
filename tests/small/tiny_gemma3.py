"""A Gemma 3 of random weights: two layers of three see the last 16 tokens alone."""

from __future__ import annotations

from pathlib import Path

from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from tests.small.chatting import chatting, lively


def build(folder: Path) -> None:
    tokens = chatting()
    config = Gemma3TextConfig(
        vocab_size=len(tokens),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    )
    lively(Gemma3ForCausalLM(config), tokens).save_pretrained(folder)
    tokens.save_pretrained(folder)
