"""GLiNER models of each kind: the trained BERT of a tiny SPLADE with random heads, their tokenizers beside them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from tests.small import package

KINDS: dict[str, dict[str, Any]] = {
    "span": {"span_mode": "markerV0"},
    "token": {"span_mode": "token_level"},
    "token_spans": {"span_mode": "token_level", "represent_spans": True},
    "bi": {"span_mode": "markerV0", "labels_encoder": True},
    "bi_token": {"span_mode": "token_level", "labels_encoder": True},
    "relex": {"span_mode": "markerV0", "relations_layer": "dot", "embed_rel_token": True},
}


def build(folder: Path) -> None:
    """One folder for each kind, as the library saves it; `pickled` is `span` with its weights in a pickle."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, about random heads and old ways of torch
        for kind in KINDS:
            _make(kind).save_pretrained(folder / kind, safe_serialization=True)
        _make("span").save_pretrained(folder / "pickled", safe_serialization=False)


def _make(kind: str) -> Any:
    from gliner import GLiNER, GLiNERConfig

    torch.manual_seed(0)
    body = str(package("cognition", "model"))
    settings = dict(KINDS[kind])
    if settings.pop("labels_encoder", False):
        settings["labels_encoder"] = body
    config = GLiNERConfig(
        model_name=body, hidden_size=128, max_width=6, max_len=40, num_rnn_layers=1, dropout=0.0, **settings
    )
    return GLiNER.from_config(config).eval()
