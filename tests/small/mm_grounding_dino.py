"""An MM Grounding DINO of random weights, like the Grounding DINO beside it."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoTokenizer, GroundingDinoImageProcessorPil, MMGroundingDinoConfig
from transformers import MMGroundingDinoForObjectDetection as Model

from tests.small import package
from tests.small.grounding_dino import sizes


def build(folder: Path) -> None:
    torch.manual_seed(0)
    body = package("cognition", "model")
    model = Model(MMGroundingDinoConfig(**sizes(body))).eval()
    with torch.no_grad():
        model.bbox_embed[0].layers[-1].weight.normal_(std=3.0)
        model.model.decoder.layer_norm.weight.mul_(0.5)
        for head in model.class_embed:
            head.bias.zero_()
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(body).save_pretrained(folder)
    GroundingDinoImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 96}).save_pretrained(folder)
