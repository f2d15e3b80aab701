"""A ModernBERT that classifies, of random weights, with a tokenizer that puts control tokens around texts and pairs."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import processors
from transformers import ModernBertConfig, ModernBertForSequenceClassification

from tests.small import bpe


def build(folder: Path) -> None:
    torch.manual_seed(3)
    tokenizer = bpe.tokenizer(longest=512)
    first, last, pad = (tokenizer.get_vocab()[token] for token in (bpe.BOS, bpe.EOS, bpe.PAD))
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bpe.BOS} $A {bpe.EOS}",
        pair=f"{bpe.BOS} $A {bpe.EOS} $B {bpe.EOS}",
        special_tokens=[(bpe.BOS, first), (bpe.EOS, last)],
    )
    config = ModernBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        local_attention=16,
        max_position_embeddings=512,
        pad_token_id=pad,
        bos_token_id=first,
        cls_token_id=first,
        eos_token_id=last,
        sep_token_id=last,
        id2label={0: "score"},
    )
    model = ModernBertForSequenceClassification(config)
    for parameter in model.parameters():
        # Weights as they begin are so small that all texts score alike.
        parameter.data.normal_(0.0, 0.2)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
