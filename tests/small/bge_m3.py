"""A tiny XLM-R with bge-m3's two heads beside it, all of random weights; the heads in safetensors."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import XLMRobertaConfig, XLMRobertaModel

from tests.small.bpe import BOS, EOS, tokenizer

LONGEST = 96


def build(folder: Path) -> None:
    torch.manual_seed(51)
    words = tokenizer(longest=LONGEST, extra=("<unk>",))
    words.add_special_tokens({"cls_token": BOS, "sep_token": EOS, "unk_token": "<unk>"})
    words.model_input_names = ["input_ids", "attention_mask"]
    config = XLMRobertaConfig(
        vocab_size=len(words),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LONGEST + 3,
        type_vocab_size=1,
        pad_token_id=words.pad_token_id,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    model = XLMRobertaModel(config, add_pooling_layer=False)
    for parameter in model.parameters():
        # Norms and biases stay as they begin: random ones would make all states alike.
        if parameter.dim() > 1:
            parameter.data.normal_(0.0, 0.3)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    for name, width in (("sparse_linear", 1), ("colbert_linear", 32)):
        tensors = {"weight": torch.randn(width, 48) / 7, "bias": torch.rand(width)}
        save_file(tensors, folder / f"{name}.safetensors")
