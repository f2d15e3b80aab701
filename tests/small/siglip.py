"""A SigLIP of random weights, with a sentencepiece tokenizer of its own kind, trained on this repository's README."""

from __future__ import annotations

from pathlib import Path

import sentencepiece
import torch
from transformers import SiglipConfig, SiglipImageProcessorPil, SiglipModel, SiglipTokenizer

from tests.small.bpe import PROSE
from tests.small.clip import LAYERS


def build(folder: Path) -> None:
    torch.manual_seed(0)
    sentencepiece.SentencePieceTrainer.train(
        input=str(PROSE), model_prefix=str(folder / "spiece"), vocab_size=500, minloglevel=2, bos_id=-1, pad_id=-1
    )
    (folder / "spiece.vocab").unlink()
    words = SiglipTokenizer(str(folder / "spiece.model"), model_max_length=24, model_input_names=["input_ids"])
    ids = {"bos_token_id": 1, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    config = SiglipConfig(
        text_config={**LAYERS, **ids, "vocab_size": len(words), "max_position_embeddings": 24, "projection_size": 64},
        vision_config={**LAYERS, "image_size": 64, "patch_size": 16},
    )
    SiglipModel(config).eval().save_pretrained(folder)
    words.save_pretrained(folder)
    SiglipImageProcessorPil(size={"height": 64, "width": 64}).save_pretrained(folder)
