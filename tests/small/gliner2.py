"""GLiNER2 models of both architectures: the trained BERT of a tiny SPLADE with random heads."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from tests.small import package


def build(folder: Path) -> None:
    """`span` and `boundary`, as the library saves them."""
    body = str(package("cognition", "model"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said by the library's imports
        from gliner2 import BoundaryExtractor, GLiNER2
        from gliner2.configuration import ExtractorConfig

        torch.manual_seed(1)
        span = GLiNER2(ExtractorConfig(model_name=body, max_width=4, counting_layer="count_lstm")).eval()
        with torch.no_grad():  # so that something is found, and scores differ by more than rounding
            for head in (span.classifier, span.count_embed):
                for weight in head.parameters():
                    weight.mul_(3)
            span.count_pred[-1].bias[2] += 10  # two of each structure
        span.save_pretrained(str(folder / "span"))
        boundary = BoundaryExtractor(ExtractorConfig(model_name=body, architecture="boundary")).eval()
        boundary.save_pretrained(str(folder / "boundary"))
