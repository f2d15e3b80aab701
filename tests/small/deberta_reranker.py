"""A DeBERTa of the second kind that classifies, of random weights: its attention is its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, DebertaV2Config, DebertaV2ForSequenceClassification

from tests.small import package


def build(folder: Path) -> None:
    torch.manual_seed(9)
    tokenizer = AutoTokenizer.from_pretrained(package("cognition", "model"))
    more: dict[str, Any] = {"position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True}
    config = DebertaV2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        pad_token_id=0,
        id2label={0: "score"},
        **more,
    )
    model = DebertaV2ForSequenceClassification(config)
    for parameter in model.parameters():
        # Weights as they begin are so small that all texts score alike.
        parameter.data.normal_(0.0, 0.3)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
