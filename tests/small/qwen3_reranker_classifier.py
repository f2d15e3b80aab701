"""The same Qwen3 as `qwen3_reranker`, made a classifier of one label: its head is the difference of yes and no."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen3ForCausalLM, Qwen3ForSequenceClassification

import tests.small


def build(folder: Path) -> None:
    decoder = tests.small.folder("qwen3_reranker")
    tokenizer = AutoTokenizer.from_pretrained(decoder)
    model = Qwen3ForCausalLM.from_pretrained(decoder)
    yes, no = (tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no"))
    config = model.config
    config.num_labels = 1
    made = Qwen3ForSequenceClassification(config)
    made.model.load_state_dict(model.model.state_dict())
    with torch.no_grad():
        made.score.weight.copy_((model.lm_head.weight[yes] - model.lm_head.weight[no])[None])
    made.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
