"""A tagger of names: the trained BERT of a tiny SPLADE with a random head of nine CoNLL tags."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoTokenizer, BertForTokenClassification

from tests.small import package

TAGS = ("O", *(f"{prefix}-{kind}" for kind in ("PER", "ORG", "LOC", "MISC") for prefix in "BI"))


def build(folder: Path) -> None:
    torch.manual_seed(7)
    body = package("cognition", "model")
    names = dict(enumerate(TAGS))
    model = BertForTokenClassification.from_pretrained(
        body, num_labels=len(names), id2label=names, label2id={name: index for index, name in names.items()}
    )
    model.classifier.weight.data.normal_(0.0, 0.3)
    model.eval().save_pretrained(folder)
    AutoTokenizer.from_pretrained(body).save_pretrained(folder)
