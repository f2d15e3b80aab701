"""GLiClass models: the trained BERT of a tiny SPLADE with random heads, one that pools the first token, one all."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from transformers import AutoConfig, AutoTokenizer

from tests.small import package

MARKERS = ("<<LABEL>>", "<<SEP>>", "<<EXAMPLE>>")


def build(folder: Path) -> None:
    """`first` pools the first token, `average` all of the text's, padding among them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said by the library's imports
        from gliclass import GLiClassModel, GLiClassModelConfig
    body = package("cognition", "model")
    for name, pooling, whole in (("first", "first", False), ("average", "avg", True)):
        torch.manual_seed(3)
        tokenizer = AutoTokenizer.from_pretrained(body)
        size = len(tokenizer)
        tokenizer.add_tokens(list(MARKERS), special_tokens=True)
        config = GLiClassModelConfig(
            encoder_config=AutoConfig.from_pretrained(body),
            encoder_model=str(body),
            class_token_index=size,
            text_token_index=size + 1,
            example_token_index=size + 2,
            pooling_strategy=pooling,
            extract_text_features=whole,
            prompt_first=True,
            dropout=0.0,
            problem_type="multi_label_classification",
        )
        model = GLiClassModel(config, from_pretrained=True)
        model.resize_token_embeddings(len(tokenizer))
        with torch.no_grad():  # so that scores differ by more than rounding
            for weight in model.model.classes_projector.parameters():
                weight.mul_(4)
        model.eval().save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
