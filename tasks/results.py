"""The stored form of a result, and the way back. Arrays stay binary until the door makes JSON of them.

A result is the msgpack of a list with one map per item, in the order of the request:
`{"id"?, "tokens", "truncated"?, <field>: value…}` or `{"id"?, "error": {code, message, retryable}}`. An array is the
map `{"dims": n, "dtype": name, "values": bytes}` where the bytes are little-endian, and `dims` counts the vector's
dimensions even when they are packed eight to a byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack


def pack_rows(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The stored bytes of a result."""
    return bytes(msgpack.packb(rows))


def unpack_rows(data: bytes) -> list[dict[str, Any]]:
    """The rows of a stored result."""
    rows: list[dict[str, Any]] = msgpack.unpackb(data)
    return rows
