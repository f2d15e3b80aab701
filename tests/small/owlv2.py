"""An OWLv2 of random weights: images of 64x64 in patches of 16, labels of up to 16 tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import processors
from transformers import Owlv2Config, Owlv2ForObjectDetection, Owlv2ImageProcessorPil, PreTrainedTokenizerFast

from tests.small.bpe import BOS, tokenizer
from tests.small.clip import LAYERS

FIRST, LAST = "<|first|>", "<|last|>"


def words() -> PreTrainedTokenizerFast:
    """A tokenizer whose padding is token 0, by which these models know a label that is none."""
    backend = tokenizer(extra=(FIRST, LAST)).backend_tokenizer
    pairs = [(token, backend.token_to_id(token)) for token in (FIRST, LAST)]
    backend.post_processor = processors.TemplateProcessing(single=f"{FIRST} $A {LAST}", special_tokens=pairs)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=FIRST, eos_token=LAST, pad_token=BOS, unk_token=LAST, model_max_length=16
    )


def sizes(tokens: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The config of both kinds: heads and projection of one width."""
    ids = {name: getattr(tokens, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return {
        "text_config": {**LAYERS, **ids, "vocab_size": len(tokens), "max_position_embeddings": 16},
        "vision_config": {**LAYERS, "image_size": 64, "patch_size": 16},
        "projection_dim": 64,
    }


def liven(model: Any) -> None:
    """Scores in the middle and boxes all over: as the library begins, they are at the ends and the edges."""
    with torch.no_grad():
        for part in (model.class_head.logit_shift, model.class_head.logit_scale):
            part.weight.zero_()
            part.bias.zero_()
        model.class_head.dense0.weight.normal_()
        model.box_head.dense2.weight.normal_(std=0.002)


def build(folder: Path) -> None:
    torch.manual_seed(0)
    tokens = words()
    model = Owlv2ForObjectDetection(Owlv2Config(**sizes(tokens))).eval()
    liven(model)
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)
    Owlv2ImageProcessorPil(size={"height": 64, "width": 64}).save_pretrained(folder)
