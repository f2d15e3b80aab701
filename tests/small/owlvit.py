"""An OWL-ViT of random weights, like the OWLv2 beside it; it sees an image stretched to a square."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import OwlViTConfig, OwlViTForObjectDetection, OwlViTImageProcessorPil

from tests.small.owlv2 import liven, sizes, words


def build(folder: Path) -> None:
    torch.manual_seed(0)
    tokens = words()
    model = OwlViTForObjectDetection(OwlViTConfig(**sizes(tokens))).eval()
    liven(model)
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)
    OwlViTImageProcessorPil(size={"height": 64, "width": 64}).save_pretrained(folder)
