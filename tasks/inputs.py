"""The stored form of a job's inputs: msgpack of its items, and of what they share.

A job of `score` has one query for all of its items; it is written once and read as `query` of every item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack


def pack_inputs(items: Sequence[Mapping[str, Any]], query: Mapping[str, Any] | None = None) -> bytes:
    """The stored bytes."""
    return bytes(msgpack.packb(items if query is None else {"query": query, "items": items}))


def read_inputs(inputs: bytes) -> list[dict[str, Any]]:
    """The items, in the caller's order. Raises ValueError on bytes that are none of ours."""
    found = msgpack.unpackb(inputs)
    if isinstance(found, dict):
        query = found["query"]
        return [{**item, "query": query} for item in found["items"]]
    items: list[dict[str, Any]] = found
    return items
