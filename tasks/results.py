"""The stored form of a result, and the way back. Arrays stay binary until the door makes JSON of them.

A result is the msgpack of a list with one map per item, in the order of the request:
`{"id"?, "tokens", "truncated"?, <field>: value…}` or `{"id"?, "error": {code, message, retryable}}`. Arrays are maps of
little-endian bytes: `dense` is `{"dims", "dtype", "values"}`, where `dims` counts dimensions even when they are packed
eight to a byte; `sparse` has `"indices"` (int32) beside them; `multivector` is `{"token_dims", "num_tokens", "dtype",
"values"}`, row by row. All else is plain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack


def pack_rows(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The stored bytes of a result. Half a surrogate pair, which no reader could have, becomes `?`."""
    try:
        return bytes(msgpack.packb(rows))
    except UnicodeEncodeError:
        return bytes(msgpack.packb(rows, unicode_errors="replace"))


def finite(value: object) -> bool:
    """Whether no number in a row's field is NaN or infinite: JSON has none, and it would be told as null."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case float(number):
                if not math.isfinite(number):
                    return False
            case Mapping() as inner:
                waiting.extend(inner.values())
            case list() | tuple() as inner:
                waiting.extend(inner)
            case _:
                pass
    return True


def unpack_rows(data: bytes) -> list[dict[str, Any]]:
    """The rows of a stored result."""
    rows: list[dict[str, Any]] = msgpack.unpackb(data)
    return rows
