"""A CLIP of random weights: two layers of 64 on each side, images of 64x64 in patches of 32."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel

from tests.small.bpe import tokenizer

LAYERS = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}


def build(folder: Path) -> None:
    torch.manual_seed(0)
    words = tokenizer(longest=32)
    ids = {name: getattr(words, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = CLIPConfig(
        text_config={**LAYERS, **ids, "vocab_size": len(words), "max_position_embeddings": 32},
        vision_config={**LAYERS, "image_size": 64, "patch_size": 32},
        projection_dim=48,
    )
    CLIPModel(config).eval().save_pretrained(folder)
    words.save_pretrained(folder)
    CLIPImageProcessorPil(size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64}).save_pretrained(folder)
