"""A classifier whose labels do not exclude each other: a RoBERTa of random weights, with its own kind of tokenizer."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import processors
from transformers import RobertaConfig, RobertaForSequenceClassification

from tests.small import bpe

LABELS = ("toxic", "threat")


def build(folder: Path) -> None:
    torch.manual_seed(4)
    tokenizer = bpe.tokenizer(longest=256)
    first, last, pad = (tokenizer.get_vocab()[token] for token in (bpe.BOS, bpe.EOS, bpe.PAD))
    tokenizer.backend_tokenizer.post_processor = processors.RobertaProcessing((bpe.EOS, last), (bpe.BOS, first))
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256 + pad + 1,
        pad_token_id=pad,
        bos_token_id=first,
        eos_token_id=last,
        type_vocab_size=1,
        problem_type="multi_label_classification",
        id2label=dict(enumerate(LABELS)),
        label2id={label: index for index, label in enumerate(LABELS)},
    )
    model = RobertaForSequenceClassification(config)
    for parameter in model.parameters():
        # Weights as they begin are so small that all texts score alike.
        parameter.data.normal_(0.0, 0.2)
    model.eval().save_pretrained(folder)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(folder)
