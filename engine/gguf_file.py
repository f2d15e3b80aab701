"""What a GGUF file says of its model: sizes, context, control tokens. Only its header is read.

The header (versions 2 and 3, little-endian) is: `GGUF`, version, number of tensors, number of fields; then each field's
name, type and value, where texts and arrays begin with their length. The format's own reader makes an array of each of
the vocabulary's tokens, which takes seconds; workers ask at their start.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.errors import LoadFailed, LoadReason

_CONTROL = 3
"""The type of tokens that only a template may use."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_COUNT = struct.Struct("<Q")
_HEAD = struct.Struct("<4sIQQ")
_MOST_FIELDS = 100_000


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """`bytes` of the file; `context` tokens that the model was trained on; bytes that a token's keys and values take.

    `control` are the texts of its control tokens.
    """

    bytes: int
    context: int
    cache_per_token: int
    control: tuple[str, ...]
    has_template: bool


def gguf_file(folder: Path) -> Path:
    """The model's file in a folder: the only one, or the first part of one in parts. Raises LoadFailed."""
    files = sorted(file for file in folder.glob("*.gguf") if "mmproj" not in file.name.lower())
    if not files:
        message = f"{folder} has no GGUF file. Fetch the model's files again."
        raise LoadFailed(message, LoadReason.NOT_FOUND)
    whole = [file for file in files if "-of-" not in file.name]
    if len(whole) > 1:
        message = f"{folder} has {len(whole)} GGUF files: name one of them as the load option 'file'."
        raise LoadFailed(message, LoadReason.CONFIG)
    return files[0] if not whole else whole[0]


@lru_cache(maxsize=16)
def read_gguf(file: Path) -> GgufFacts:
    """The facts of a file. Raises LoadFailed where it is no GGUF file, or cut short within its header."""
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            fields = _fields(data)
        kind = str(fields["general.architecture"])
        layers, heads = _number(fields, kind, "block_count"), _number(fields, kind, "attention.head_count")
        width = _number(fields, kind, "embedding_length")
        groups = _number(fields, kind, "attention.head_count_kv", heads)
        head = _number(fields, kind, "attention.key_length", width // max(heads, 1))
        tokens, marked = fields["tokenizer.ggml.tokens"], fields.get("tokenizer.ggml.token_type", ())
        control = tuple(tokens[place] for place, mark in enumerate(marked) if mark == _CONTROL)
        context = _number(fields, kind, "context_length")
    except (ValueError, KeyError, IndexError, TypeError, struct.error, OSError) as error:
        message = f"{file} is cut short or is no GGUF file. Delete it, so that it is fetched again."
        raise LoadFailed(message, LoadReason.CORRUPT) from error
    parts = sorted(file.parent.glob(file.name.replace("-00001-of-", "-*-of-"))) if "-of-" in file.name else [file]
    return GgufFacts(
        bytes=sum(part.stat().st_size for part in parts),
        context=context,
        # Keys and values of all layers, in two bytes each.
        cache_per_token=2 * 2 * layers * groups * head,
        control=control,
        has_template="tokenizer.chat_template" in fields,
    )


def _fields(data: mmap.mmap) -> dict[str, Any]:
    """The fields of a header by name. Raises ValueError or struct.error where there is none, or not the whole of it."""
    magic, version, _, count = _HEAD.unpack_from(data)
    if magic != b"GGUF" or version not in (2, 3) or count > _MOST_FIELDS:
        raise ValueError("no GGUF file of a version that is known")
    fields: dict[str, Any] = {}
    at = _HEAD.size
    for _ in range(count):
        name, at = _text(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        fields[name], at = _value(data, at + 4, kind)
    return fields


def _value(data: mmap.mmap, at: int, kind: int) -> tuple[Any, int]:
    """The value at a place, and where the next thing begins."""
    if kind == _TEXT:
        return _text(data, at)
    if kind != _ARRAY:
        form = struct.Struct(f"<{_SCALARS[kind]}")
        return form.unpack_from(data, at)[0], at + form.size
    of, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if of in _SCALARS:
        size = struct.calcsize(_SCALARS[of]) * count
        if at + size > len(data):
            raise ValueError("an array ends after the file")
        return struct.unpack_from(f"<{count}{_SCALARS[of]}", data, at), at + size
    if of != _TEXT or count > len(data):
        raise ValueError("an array of what no header has")
    found = []
    for _ in range(count):
        text, at = _text(data, at)
        found.append(text)
    return found, at


def _text(data: mmap.mmap, at: int) -> tuple[str, int]:
    (length,) = _COUNT.unpack_from(data, at)
    end = at + _COUNT.size + length
    if end > len(data):
        raise ValueError("a text ends after the file")
    return data[at + _COUNT.size : end].decode("utf-8", "replace"), end


def _number(fields: Mapping[str, Any], kind: str, name: str, otherwise: int | None = None) -> int:
    value = fields.get(f"{kind}.{name}", otherwise)
    if value is None:
        raise KeyError(name)
    return int(max(value) if isinstance(value, tuple) else value)
