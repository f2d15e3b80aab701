"""A ColPali of random weights: a page is an image of 64x64 in patches of 16, a query up to 64 tokens."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import ColPaliConfig, ColPaliForRetrieval, ColPaliProcessor, SiglipImageProcessorPil

from tests.small.bpe import tokenizer
from tests.small.clip import LAYERS

IMAGE = "<image>"


def build(folder: Path) -> None:
    torch.manual_seed(0)
    words = tokenizer(longest=64, template=False, extra=(IMAGE,))
    images = SiglipImageProcessorPil(size={"height": 64, "width": 64}, image_seq_length=16)
    processor = ColPaliProcessor(images, words)
    ids = {name: getattr(words, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = ColPaliConfig(
        vlm_config={
            "model_type": "paligemma",
            "vision_config": {**LAYERS, "image_size": 64, "patch_size": 16, "vision_use_head": False},
            "text_config": {
                **LAYERS,
                **ids,
                "model_type": "gemma",
                "vocab_size": len(words),
                "num_key_value_heads": 1,
                "head_dim": 32,
            },
            "projection_dim": 64,
            "image_token_index": words.convert_tokens_to_ids(IMAGE),
        },
        embedding_dim=24,
    )
    ColPaliForRetrieval(config).eval().save_pretrained(folder)
    processor.save_pretrained(folder)
