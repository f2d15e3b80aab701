"""A ColQwen2 of random weights: a page keeps its proportions, in patches of 14 of which four make a token."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import ColQwen2Config, ColQwen2ForRetrieval, ColQwen2Processor, Qwen2VLImageProcessorPil

from tests.small.bpe import tokenizer
from tests.small.clip import LAYERS

SIGNS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


def build(folder: Path) -> None:
    torch.manual_seed(0)
    words = tokenizer(longest=128, template=False, extra=SIGNS)
    images = Qwen2VLImageProcessorPil(size={"shortest_edge": 56 * 56, "longest_edge": 140 * 140})
    processor = ColQwen2Processor(images, words)
    ids = {name: getattr(words, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    numbers = {sign: words.convert_tokens_to_ids(sign) for sign in SIGNS}
    config = ColQwen2Config(
        vlm_config={
            "model_type": "qwen2_vl",
            "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
            "text_config": {
                **LAYERS,
                **ids,
                "model_type": "qwen2_vl_text",
                "vocab_size": len(words),
                "num_key_value_heads": 1,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
            },
            "image_token_id": numbers["<|image_pad|>"],
            "video_token_id": numbers["<|video_pad|>"],
            "vision_start_token_id": numbers["<|vision_start|>"],
            "vision_end_token_id": numbers["<|vision_end|>"],
        },
        embedding_dim=24,
    )
    ColQwen2ForRetrieval(config).eval().save_pretrained(folder)
    processor.save_pretrained(folder)
