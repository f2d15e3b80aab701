"""A SigLIP 2 of random weights that reads images in their own proportions, up to 36 patches."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import Siglip2Config, Siglip2ImageProcessorPil, Siglip2Model

from tests.small.bpe import tokenizer
from tests.small.clip import LAYERS


def build(folder: Path) -> None:
    torch.manual_seed(0)
    words = tokenizer(longest=24)
    ids = {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    text = {**LAYERS, **ids, "vocab_size": len(words), "max_position_embeddings": 24, "projection_size": 64}
    config = Siglip2Config(text_config=text, vision_config={**LAYERS, "num_patches": 36, "patch_size": 16})
    Siglip2Model(config).eval().save_pretrained(folder)
    words.save_pretrained(folder)
    Siglip2ImageProcessorPil(patch_size=16, max_num_patches=36).save_pretrained(folder)
