"""A late-interaction model in PyLate's layout: random weights, markers with a blank in them, filler to attend to."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Transformer
from tokenizers import AddedToken
from torch.nn import Identity
from transformers import ModernBertConfig, ModernBertModel

from tests.small.bpe import tokenizer

LONGEST = 128
SETTINGS = {
    "model_type": "ColBERT",
    "prompts": {"query": "", "document": ""},
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "query_length": 24,
    "document_length": 64,
    "attend_to_expansion_tokens": True,
    "skiplist_words": [",", "."],
    "similarity_fn_name": "MaxSim",
}


def build(folder: Path) -> None:
    torch.manual_seed(42)
    words = tokenizer(longest=LONGEST, extra=("[MASK]",))
    words.mask_token = "[MASK]"
    words.add_tokens([AddedToken("[Q] ", normalized=True), AddedToken("[D] ", normalized=True)])
    config = ModernBertConfig(
        vocab_size=len(words),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LONGEST,
        local_attention=16,
        pad_token_id=words.pad_token_id,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        cls_token_id=words.bos_token_id,
        sep_token_id=words.eos_token_id,
    )
    model = ModernBertModel(config)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.3)
    model.save_pretrained(folder / "base")
    words.save_pretrained(folder / "base")
    dense = Dense(48, 32, bias=False, activation_function=Identity(), module_input_name="token_embeddings")
    whole = MultiVectorEncoder(modules=[Transformer(str(folder / "base")), dense], device="cpu")
    whole.save(str(folder), create_model_card=False)
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "pylate.models.Dense.Dense"
    (folder / "modules.json").write_text(json.dumps(modules))
    own = json.loads((folder / modules[1]["path"] / "config.json").read_text())
    kept = {name: own[name] for name in ("in_features", "out_features", "bias", "activation_function")}
    (folder / modules[1]["path"] / "config.json").write_text(json.dumps(kept))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(SETTINGS))
