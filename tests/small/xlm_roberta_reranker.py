"""An XLM-RoBERTa that classifies, of random weights, with a Unigram tokenizer that puts two tokens between a pair."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaForSequenceClassification


def build(folder: Path) -> None:
    torch.manual_seed(8)
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    pieces += [(letter, -6.0) for letter in "abcdefghijklmnopqrstuvwxyz<>/[]"]
    pieces += [("▁harbour", -3.0), ("ships", -3.0), ("▁and", -3.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=64,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)
    config = XLMRobertaConfig(
        vocab_size=len(pieces),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=66,
        pad_token_id=1,
        type_vocab_size=1,
        id2label={0: "score"},
    )
    model = XLMRobertaForSequenceClassification(config)
    for parameter in model.parameters():
        # Weights as they begin are so small that all texts score alike.
        parameter.data.normal_(0.0, 0.3)
    model.eval().save_pretrained(folder)
