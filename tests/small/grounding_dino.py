"""A Grounding DINO of random weights, that reads 24 tokens and images of 64 to 96 pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    GroundingDinoConfig,
    GroundingDinoForObjectDetection,
    GroundingDinoImageProcessorPil,
    SwinConfig,
)

from tests.small import package


def sizes(body: Path) -> dict[str, Any]:
    """The config of both kinds, over the config of a BERT."""
    backbone = SwinConfig(
        embed_dim=16,
        depths=[1, 1, 1, 1],
        num_heads=[1, 2, 4, 8],
        window_size=7,
        image_size=64,
        out_features=["stage2", "stage3", "stage4"],  # type: ignore[call-arg]  # taken by the base class
    )
    return {
        "backbone_config": backbone,
        "text_config": AutoConfig.from_pretrained(body).to_dict(),
        "d_model": 64,
        "num_queries": 20,
        "encoder_layers": 2,
        "encoder_ffn_dim": 128,
        "encoder_attention_heads": 2,
        "decoder_layers": 2,
        "decoder_ffn_dim": 128,
        "decoder_attention_heads": 2,
        "max_text_len": 24,
    }


def build(folder: Path) -> None:
    torch.manual_seed(0)
    body = package("cognition", "model")
    model = GroundingDinoForObjectDetection(GroundingDinoConfig(**sizes(body))).eval()
    with torch.no_grad():
        # As the library begins, boxes stay at their anchors and all scores are near 0 or 1.
        model.bbox_embed[0].layers[-1].weight.normal_(std=3.0)
        model.model.decoder.layer_norm.weight.mul_(0.2)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(body).save_pretrained(folder)
    GroundingDinoImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 96}).save_pretrained(folder)
