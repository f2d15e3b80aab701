"""A GLiNER2 by spans: the trained BERT of a tiny SPLADE with random heads."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from tests.small import package


def build(folder: Path) -> None:
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said by the library's imports
        from gliner2 import GLiNER2
        from gliner2.configuration import ExtractorConfig

        config = ExtractorConfig(
            model_name=str(package("cognition", "model")), max_width=4, counting_layer="count_lstm"
        )
        model = GLiNER2(config).eval()
        with torch.no_grad():  # so that something is found, and scores differ by more than rounding
            for head in (model.classifier, model.count_embed):
                for weight in head.parameters():
                    weight.mul_(3)
            model.count_pred[-1].bias[2] += 10  # two of each structure
        model.save_pretrained(str(folder))
