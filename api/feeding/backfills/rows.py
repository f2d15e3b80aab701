"""From the results of a document's last step to rows of the output. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from api.media import dumps
from tasks.backfills.backfill import Document
from tasks.backfills.plan import StepName
from tasks.rendering import Encoding, json_rows

_OURS = frozenset({"document", "metadata", "chunk", "page", "headings", "text"})
_OF_CHUNKS = {"page:int", "headings:texts"}
_LEFT_OUT = frozenset({"id", "rank"})
"""A row has its document for an id, and ranks are of one job alone."""


@dataclass(slots=True)
class Piece:
    """A document, or a chunk of one, between two steps: the text that the next step reads, and what was found."""

    text: str | None = None
    chunk: int | None = None
    page: int | None = None
    headings: Sequence[str] = ()
    found: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] | None = None


def after(step: StepName, piece: Piece, row: dict[str, Any], *, textual: bool) -> Piece:
    """The piece with what a job has found in it; `textual`: that is its new text."""
    (plain,) = json_rows([row], Encoding.FLOAT)
    found = {name: _flat(name, value) for name, value in plain.items() if name not in _LEFT_OUT}
    piece = Piece(piece.text, piece.chunk, piece.page, piece.headings)
    if step is StepName.GENERATE:
        piece.text, made = str(found.pop("text", "")), piece.text
        # The text that was read stays beside what was made of it, where it is not the whole document.
        piece.found = {"output": piece.text, **({} if piece.chunk is None else {"input": made}), **found}
    elif textual:
        data = found.get("data")
        piece.data = data if isinstance(data, Mapping) else {}
        piece.text = str(piece.data.get("markdown") or piece.data.get("text") or "")
        piece.found = found
    else:
        piece.found = found
    return piece


def rows_of(document: Document, steps: Sequence[StepName], pieces: Sequence[Piece]) -> Iterator[dict[str, Any]]:
    """The rows of a document: one, or one for each of its chunks."""
    last = steps[-1]
    for piece in pieces:
        row: dict[str, Any] = {"document": document.name}
        if document.labels:
            row["metadata"] = document.labels
        if piece.chunk is not None:
            row |= {"chunk": piece.chunk, "page": piece.page, "headings": list(piece.headings)}
        if last is StepName.GENERATE:
            if piece.chunk is not None:
                row["text"] = piece.found.get("input")
        elif piece.text is not None and (len(steps) > 1 or piece.data is not None or last is StepName.CHUNK):
            row["text"] = piece.text
        for name, value in piece.found.items():
            if name != "input":
                row[f"{last.value}_{name}" if name in _OURS else name] = value
        yield row


def written(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The rows as lines of JSON."""
    return b"".join(dumps(row) + b"\n" for row in rows)


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the rows hold, as `name:kind`, for the types of a table's columns."""
    found = {f"{name}:{kind}" for row in rows for name, value in row.items() if (kind := _kind(value))}
    # Tables of chunks are alike, whether there are pages and headings or none.
    return sorted(found | (_OF_CHUNKS if any("chunk" in row for row in rows) else set()))


def _flat(name: str, value: Any) -> Any:
    """A vector as its numbers alone; of a sparse one the places, too."""
    if not isinstance(value, Mapping) or "values" not in value or name not in ("dense", "sparse", "multivector"):
        return value
    if name == "sparse":
        return {"indices": value["indices"], "values": value["values"]}
    return value["values"]


def _kind(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "bool"
        case int():
            # What a column of integers and fractions cannot hold exactly is told as it is.
            return "int" if abs(value) <= 2**53 else "json"
        case float():
            return "float"
        case str():
            return "text"
        case np.ndarray():
            return ("rows" if value.ndim > 1 else "floats") if value.dtype.kind == "f" or value.ndim > 1 else "ints"
        case {"indices": np.ndarray(), "values": np.ndarray(), **rest} if not rest:
            return "sparse"
        case list() if value and all(isinstance(one, str) for one in value):
            return "texts"
        case list() if not value:
            return None
        case _:
            return "json"
