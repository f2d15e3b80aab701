"""A Qwen3 of random weights that can say yes and no."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.small import bpe

CONTROL = ("<|im_start|>", "<|im_end|>")


def build(folder: Path) -> None:
    torch.manual_seed(6)
    tokenizer = bpe.tokenizer(longest=2048, template=False, extra=CONTROL)
    tokenizer.add_tokens(["yes", "no", "Yes"])
    first, last, pad = (tokenizer.get_vocab()[token] for token in (bpe.BOS, bpe.EOS, bpe.PAD))
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=first,
        eos_token_id=last,
        pad_token_id=pad,
    )
    model = Qwen3ForCausalLM(config)
    for parameter in model.parameters():
        # Weights as they begin are so small that all texts score alike.
        parameter.data.normal_(0.0, 0.15)
    model.eval().save_pretrained(folder)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(folder)
