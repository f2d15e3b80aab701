"""A LLaVA of random weights: CLIP's eyes before a Qwen3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    Qwen3Config,
)

from tests.small.chatting import chatting, lively

SIDE, PATCH = 32, 8


def build(folder: Path) -> None:
    tokens = chatting("<image>")
    text = Qwen3Config(
        vocab_size=len(tokens),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
    )
    eyes = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=SIDE,
        patch_size=PATCH,
    )
    image: Any = tokens.convert_tokens_to_ids("<image>")
    config = LlavaConfig(
        vision_config=eyes,
        text_config=text,
        image_token_index=image,
        vision_feature_layer=-1,
        image_seq_length=(SIDE // PATCH) ** 2,
    )
    lively(LlavaForConditionalGeneration(config), tokens).save_pretrained(folder)
    size = {"height": SIDE, "width": SIDE}
    LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=size),
        tokenizer=tokens,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tokens.chat_template,
    ).save_pretrained(folder)
