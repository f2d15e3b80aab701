"""What came of an item, in a line for people. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from roost.arrays import Array
from roost.results import Item

_FIRST = 4
_LISTS = ("entities", "relations", "classifications", "objects")
_NOT_VALUES = frozenset({"id", "tokens", "truncated", "rank", "raw_score", "finish_reason"})


def row(item: Item) -> tuple[object, ...]:
    """Its place, its id, and what it has."""
    return (item.index, item.id or "-", told(item))


def told(item: Item) -> str:
    """All values of an item, or its error, in a line."""
    if (error := item.error) is not None:
        return f"{error.code}: {error.message}"
    return "; ".join(_value(item, name) for name in item.fields if name not in _NOT_VALUES)


def _value(item: Item, name: str) -> str:
    value = item.fields[name]
    if name == "dense":
        return _array(item.vector)
    if name == "multivector":
        array = item.multivector
        return f"{len(array.values)} of {_array(Array(array.values[:1].ravel(), array.dims, array.dtype))}"
    if name == "sparse":
        return f"{len(item.sparse.indices)} of {item.sparse.dims} dimensions are not zero"
    if name == "score":
        return f"{item.score:.4f}" + (f" (rank {item.rank})" if item.rank is not None else "")
    if name == "text":
        return item.text
    if name in _LISTS:
        return ", ".join(map(_finding, value)) or f"no {name}"
    if name == "data" and isinstance(value, Mapping):
        return str(value.get("markdown") or value.get("text") or json.dumps(value, ensure_ascii=False))
    return f"{name}: {json.dumps(value, ensure_ascii=False, default=str)}"


def _array(array: Array) -> str:
    first = ", ".join(f"{number:.4g}" for number in array.values[:_FIRST].tolist())
    more = ", …" if len(array.values) > _FIRST else ""
    return f"{array.dims} {array.dtype} [{first}{more}]"


def _finding(found: Mapping[str, Any]) -> str:
    if "relation" in found:
        return f"{found['head']['text']} {found['relation']} {found['tail']['text']} ({found['score']:.2f})"
    at = f" at {found['bbox']}" if "bbox" in found else ""
    text = f"{found['text']}: " if "text" in found else ""
    return f"{text}{found['label']}{at} ({found['score']:.2f})"
