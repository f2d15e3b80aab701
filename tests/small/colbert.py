"""A late-interaction model in the layout of the first ColBERT: a trained tiny BERT, and a random projection."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer, BertModel

from tests.small import package

SETTINGS = {
    "query_token_id": "[unused0]",
    "doc_token_id": "[unused1]",
    "dim": 32,
    "query_maxlen": 16,
    "doc_maxlen": 48,
    "mask_punctuation": True,
    "attend_to_mask_tokens": False,
}


def build(folder: Path) -> None:
    torch.manual_seed(41)
    body = package("cognition", "model")
    model = BertModel.from_pretrained(body)
    tensors = {f"bert.{name}": tensor.contiguous() for name, tensor in model.state_dict().items()}
    tensors["linear.weight"] = torch.randn(32, 128) / 8
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict() | {"architectures": ["HF_ColBERT"]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "artifact.metadata").write_text(json.dumps(SETTINGS))
    AutoTokenizer.from_pretrained(body).save_pretrained(folder)
