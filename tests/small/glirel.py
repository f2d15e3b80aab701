"""A GLiREL: the trained BERT of a tiny SPLADE with random heads, with its weights in safetensors and in a pickle."""

from __future__ import annotations

import json
import shutil
import warnings
from argparse import Namespace
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer

from tests.small import package

SETTINGS = {
    "fine_tune": True,
    "subtoken_pooling": "first",
    "hidden_size": 128,
    "rel_mode": "marker",
    "span_marker_mode": "markerv1",
    "max_width": 8,
    "dropout": 0.0,
    "scorer": "dot",
    "label_embed_strategy": "label",
    "max_entity_pair_distance": None,
    "refine_relation": True,
    "refine_prompt": True,
    "ffn_mul": 2,
    "fixed_relation_types": True,
    "max_len": 40,
}


def build(folder: Path) -> None:
    """`safe` has both forms of the weights, `pickled` one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said by the library's imports
        from glirel import GLiREL
    body = package("cognition", "model")
    settings = {"model_name": str(body), **SETTINGS}
    torch.manual_seed(0)
    model = GLiREL(Namespace(**settings, device="cpu")).eval()
    with torch.no_grad():  # scores that are neither all nothing nor all certain
        for weight in model.prompt_rep_layer.parameters():
            weight.mul_(0.5)
    for name in ("safe", "pickled"):
        (folder / name).mkdir()
        (folder / name / "glirel_config.json").write_text(json.dumps(settings))
        shutil.copy(body / "config.json", folder / name)
        AutoTokenizer.from_pretrained(body).save_pretrained(folder / name)
        torch.save(model.state_dict(), folder / name / "pytorch_model.bin")
    tensors = {key: value.clone().contiguous() for key, value in model.state_dict().items()}
    save_file(tensors, folder / "safe" / "model.safetensors")
