"""A Qwen3-VL of random weights: places in two dimensions, and what the eyes see is added to several layers."""

from __future__ import annotations

from pathlib import Path

from transformers import Qwen2VLImageProcessorPil, Qwen3VLConfig, Qwen3VLForConditionalGeneration

from tests.small.chatting import chatting, lively

BEGIN, IMAGE, END, VIDEO = "<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>"
PATCH = 8
TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000.0,
        "mrope_section": [4, 2, 2],
        "mrope_interleaved": True,
    },
    "tie_word_embeddings": False,
}
EYES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "depth": 3,
    "num_heads": 2,
    "patch_size": PATCH,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 64,
}


def save(folder: Path, kind: type, config: type, text: dict[str, object], eyes: dict[str, object]) -> None:
    """A model of this kind, with its tokenizer and image processor."""
    tokens = chatting(BEGIN, IMAGE, END, VIDEO, image=f"{BEGIN}{IMAGE}{END}")
    names = {
        "vision_start_token_id": BEGIN,
        "image_token_id": IMAGE,
        "vision_end_token_id": END,
        "video_token_id": VIDEO,
    }
    made = config(
        text_config={**TEXT, **text, "vocab_size": len(tokens)},
        vision_config={**EYES, **eyes},
        tie_word_embeddings=False,
        **{name: tokens.convert_tokens_to_ids(token) for name, token in names.items()},
    )
    lively(kind(made), tokens).save_pretrained(folder)
    tokens.save_pretrained(folder)
    Qwen2VLImageProcessorPil(
        patch_size=PATCH,
        merge_size=2,
        temporal_patch_size=2,
        size={"shortest_edge": 4 * PATCH**2, "longest_edge": 64 * PATCH**2},
    ).save_pretrained(folder)


def build(folder: Path) -> None:
    save(folder, Qwen3VLForConditionalGeneration, Qwen3VLConfig, {}, {"deepstack_visual_indexes": [0, 1]})
