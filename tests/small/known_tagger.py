"""A tagger whose weights are written by hand, so that what it finds is known: "paris" and "new york" are places, "acme"
and "beta" organisations.

Every word of its vocabulary has a direction of its own, attention and feed-forward add nothing, and the head looks for
the directions of these words.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast

CONTROL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TAGS = ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG")
WORDS = {"paris": "B-LOC", "new": "B-LOC", "york": "I-LOC", "acme": "B-ORG", "beta": "B-ORG"}
OTHERS = ("the", "word", "filed", "paid", "after", ".", ",")
WIDTH = 32


def build(folder: Path) -> None:
    words = [*CONTROL, *WORDS, *OTHERS]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=32,
    ).save_pretrained(folder)
    names = dict(enumerate(TAGS))
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=WIDTH,
        max_position_embeddings=32,
        id2label=names,
        label2id={name: index for index, name in names.items()},
    )
    model = BertForTokenClassification(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith("LayerNorm.weight") else 0.0)
        model.bert.embeddings.word_embeddings.weight.copy_(torch.eye(len(words), WIDTH))
        for word, tag in WORDS.items():
            model.classifier.weight[TAGS.index(tag), words.index(word)] = 3.0
        model.classifier.bias[0] = 6.0
    model.eval().save_pretrained(folder)
