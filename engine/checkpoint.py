"""What a checkpoint's files say before anything is loaded: how many bytes the weights take, and the model's shape.

Only headers are read. A file shorter than its header says was cut in a download; loading it would fail late.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import LoadFailed, LoadReason

_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
_FLOATS = {"F64", "F32", "F16", "BF16"}
_LONGEST_HEADER = 100 * 2**20


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors of a checkpoint: how many values, and their bytes once floats are of the type that was asked for."""

    values: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a transformer that its activations depend on; zero where the config does not say."""

    hidden: int
    inner: int
    layers: int
    heads: int
    positions: int


def read_weights(files: Iterable[Path], float_bytes: int) -> Weights:
    """All tensors of some safetensors files. Raises LoadFailed (corrupt) for a file that is cut short or is none."""
    values = total = 0
    for file in files:
        for tensor in _header(file).values():
            count = math.prod(tensor["shape"])
            kind = tensor["dtype"]
            values += count
            total += count * (float_bytes if kind in _FLOATS else _BYTES.get(kind, 1))
    return Weights(values, total)


def read_names(files: Iterable[Path]) -> set[str]:
    """The names of all tensors of some safetensors files. Raises as `read_weights` does."""
    return {name for file in files for name in _header(file)}


def read_shape(config: dict[str, Any]) -> Shape:
    """The shape in a transformers `config.json`, by the names that the families give it."""
    # A model of texts and images keeps the text's own part below.
    own = config if "hidden_size" in config or "text_config" not in config else config["text_config"]
    hidden = _first(own, "hidden_size", "d_model", "dim", "n_embd")
    return Shape(
        hidden=hidden,
        inner=_first(own, "intermediate_size", "d_ff", "hidden_dim", "ffn_dim", "n_inner") or 4 * hidden,
        layers=_first(own, "num_hidden_layers", "num_layers", "n_layers", "n_layer"),
        heads=_first(own, "num_attention_heads", "n_heads", "n_head", "num_heads"),
        positions=_first(own, "max_position_embeddings", "n_positions"),
    )


def _header(file: Path) -> dict[str, dict[str, Any]]:
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > min(size, _LONGEST_HEADER):
                raise _corrupt(file)
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        end = max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
    except FileNotFoundError as error:
        raise LoadFailed(f"{file} is not there. Fetch the model's files again.", LoadReason.NOT_FOUND) from error
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _corrupt(file) from error
    if size < 8 + length + end:
        raise _corrupt(file)
    found: dict[str, dict[str, Any]] = header
    return found


def _corrupt(file: Path) -> LoadFailed:
    message = f"{file} is cut short or is no safetensors file. Delete it, so that it is fetched again."
    return LoadFailed(message, LoadReason.CORRUPT)


def _first(config: dict[str, Any], *names: str) -> int:
    return next((value for name in names if isinstance(value := config.get(name), int)), 0)
