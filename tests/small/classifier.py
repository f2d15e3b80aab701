"""A classifier of texts: the trained BERT of a tiny SPLADE with a random head of three labels."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoTokenizer, BertForSequenceClassification

from tests.small import package

LABELS = ("calm", "angry", "attack")


def build(folder: Path) -> None:
    torch.manual_seed(5)
    body = package("cognition", "model")
    names = dict(enumerate(LABELS))
    model = BertForSequenceClassification.from_pretrained(
        body, num_labels=len(names), id2label=names, label2id={name: index for index, name in names.items()}
    )
    model.classifier.weight.data.normal_(0.0, 0.5)
    model.eval().save_pretrained(folder)
    AutoTokenizer.from_pretrained(body).save_pretrained(folder)
