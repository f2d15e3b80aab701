"""What a GGUF file says of its model: sizes, context, control tokens. Its header is read by the format's own reader."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.errors import LoadFailed, LoadReason

_CONTROL = 3
"""The type of tokens that only a template may use."""


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
    """The facts of a file. Raises LoadFailed where it is no GGUF file, or the reader is not installed."""
    try:
        from gguf import GGUFReader
    except ModuleNotFoundError as error:
        message = "GGUF files need the package gguf: pip install 'roost[llama]'."
        raise LoadFailed(message, LoadReason.DEPENDENCY) from error
    try:
        fields = GGUFReader(file).fields
        kind = str(fields["general.architecture"].contents())
        layers, heads = _number(fields, kind, "block_count"), _number(fields, kind, "attention.head_count")
        width = _number(fields, kind, "embedding_length")
        groups = _number(fields, kind, "attention.head_count_kv", heads)
        head = _number(fields, kind, "attention.key_length", width // max(heads, 1))
        tokens, types = fields["tokenizer.ggml.tokens"], fields.get("tokenizer.ggml.token_type")
        marked = [] if types is None else types.contents()
        control = tuple(tokens.contents(place) for place, mark in enumerate(marked) if mark == _CONTROL)
        context = _number(fields, kind, "context_length")
    except (ValueError, KeyError, IndexError, OSError) as error:
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


def _number(fields: Any, kind: str, name: str, otherwise: int | None = None) -> int:
    field = fields.get(f"{kind}.{name}")
    if field is None:
        if otherwise is None:
            raise KeyError(name)
        return otherwise
    value = field.contents()
    return int(max(value) if isinstance(value, list) else value)
