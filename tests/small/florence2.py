"""A Florence-2 of random weights: its layout, two tiny encoders and a tiny decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    BartConfig,
    CLIPImageProcessorPil,
    Florence2Config,
    Florence2ForConditionalGeneration,
    Florence2Processor,
    Florence2VisionConfig,
)

from tests.small.bpe import tokenizer

SIDE = 64


def build(folder: Path) -> None:
    torch.manual_seed(0)
    words = tokenizer(longest=256, template=False, extra=("<image>", *(f"<loc_{n}>" for n in range(1000))))
    words.add_tokens(["<od>", "</od>", "<ocr>", "</ocr>"])
    words.image_token, words.image_token_id = "<image>", words.convert_tokens_to_ids("<image>")
    words.init_kwargs["image_token"] = "<image>"
    vision = Florence2VisionConfig(
        depths=(1, 1, 1, 1),
        embed_dim=(16, 16, 32, 32),
        num_heads=(2, 2, 2, 2),
        num_groups=(2, 2, 2, 2),
        window_size=4,
        projection_dim=32,
        drop_path_rate=0.0,
        initializer_range=0.4,
    )
    text = BartConfig(
        vocab_size=len(words),
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=256,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        decoder_start_token_id=words.eos_token_id,
        forced_eos_token_id=None,
        # Small random weights say the same of every image.
        init_std=0.4,
    )
    config = Florence2Config(
        text_config=text.to_dict(), vision_config=vision.to_dict(), image_token_id=words.image_token_id
    )
    model = Florence2ForConditionalGeneration(config)
    model.generation_config.update(
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        decoder_start_token_id=words.eos_token_id,
        # Random weights would end at once.
        suppress_tokens=[words.eos_token_id, words.pad_token_id],
    )
    model.eval().save_pretrained(folder)
    images: Any = CLIPImageProcessorPil(size={"height": SIDE, "width": SIDE}, do_center_crop=False, crop_size=None)
    images.image_seq_length = (SIDE // 32) ** 2 + 1
    Florence2Processor(images, words).save_pretrained(folder)
