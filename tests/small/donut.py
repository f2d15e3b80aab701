"""A Donut of random weights: a tiny Swin encoder and a tiny MBart decoder."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    DonutImageProcessorPil,
    DonutProcessor,
    DonutSwinConfig,
    MBartConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
)

from tests.small.bpe import tokenizer


def build(folder: Path) -> None:
    torch.manual_seed(0)
    fields = ("s_menu", "s_nm", "s_price", "s_question", "s_answer")
    words = tokenizer(longest=128, template=False, extra=("<s_receipt>", "<s_docvqa>", "<sep/>"))
    words.add_tokens([tag for name in fields for tag in (f"<{name}>", f"</{name}>")])
    encoder = DonutSwinConfig(
        image_size=(64, 64),
        patch_size=4,
        embed_dim=16,
        depths=(1, 1),
        num_heads=(2, 2),
        window_size=4,
        initializer_range=0.4,
    )
    decoder = MBartConfig(
        vocab_size=len(words),
        d_model=32,
        decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=64,
        max_position_embeddings=128,
        is_decoder=True,
        # Small random weights say the same of every image.
        init_std=0.4,
    )
    decoder.add_cross_attention = True
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id = words.bos_token_id, words.pad_token_id
    model = VisionEncoderDecoderModel(config=config)
    model.generation_config.update(
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        decoder_start_token_id=words.bos_token_id,
        suppress_tokens=[words.eos_token_id, words.pad_token_id],
    )
    model.eval().save_pretrained(folder)
    images = DonutImageProcessorPil(size={"height": 64, "width": 64}, do_align_long_axis=False)
    DonutProcessor(images, words).save_pretrained(folder)
