"""A BART of random weights that tells entailment: it reads a pair twice and classifies by its last token."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import processors
from transformers import BartConfig, BartForSequenceClassification

from tests.small import bpe

LABELS = ("contradiction", "neutral", "entailment")


def build(folder: Path) -> None:
    torch.manual_seed(10)
    tokenizer = bpe.tokenizer(longest=128)
    first, last, pad = (tokenizer.get_vocab()[token] for token in (bpe.BOS, bpe.EOS, bpe.PAD))
    tokenizer.backend_tokenizer.post_processor = processors.RobertaProcessing((bpe.EOS, last), (bpe.BOS, first))
    config = BartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=128,
        pad_token_id=pad,
        bos_token_id=first,
        eos_token_id=last,
        decoder_start_token_id=last,
        forced_eos_token_id=last,
        id2label=dict(enumerate(LABELS)),
        label2id={label: index for index, label in enumerate(LABELS)},
    )
    model = BartForSequenceClassification(config)
    for parameter in model.parameters():
        # Weights as they begin are so small that all texts score alike.
        parameter.data.normal_(0.0, 0.2)
    model.eval().save_pretrained(folder)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(folder)
