"""Bounds on how much a body becomes when it is decoded: bytes alone say little of that.

A list costs a reader of JSON two bytes and the decoder ninety; ten million of them hold the event loop for ten seconds.
Bodies of up to `SMALL_BYTES` are let through: what they become is little.
"""

from __future__ import annotations

import re
from typing import Any

import msgpack

from tasks.errors import LimitExceeded

SMALL_BYTES = 256 * 1024
MOST_CONTAINERS = 500_000
MOST_VALUES = 4_000_000

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def check_values(body: bytes) -> None:
    """Raise LimitExceeded for a body of JSON with too many lists and objects, or too many values in them.

    What is inside texts does not count; texts are only looked for where a plain count is too high.
    """
    if len(body) > SMALL_BYTES and not _few(body) and not _few(_STRING.sub(b"", body)):
        raise _too_many()


def _few(body: bytes) -> bool:
    return body.count(b"[") + body.count(b"{") <= MOST_CONTAINERS and body.count(b",") <= MOST_VALUES


def unpack(body: bytes) -> object:
    """A msgpack body, as deep as the decoder goes. Raises LimitExceeded, ValueError or msgpack's own errors."""
    if len(body) <= SMALL_BYTES:
        return msgpack.unpackb(body, ext_hook=no_extension)
    counted = _Counted()
    try:
        return msgpack.unpackb(
            body,
            ext_hook=no_extension,
            list_hook=counted.add,
            object_hook=counted.add,
            max_array_len=MOST_VALUES,
            max_map_len=MOST_VALUES,
        )
    except ValueError as error:
        if "max_array_len" in str(error) or "max_map_len" in str(error):
            raise _too_many() from None
        raise


class _Counted:
    """Sees each list and map once it is read."""

    def __init__(self) -> None:
        self._containers = self._values = 0

    def add(self, container: Any) -> Any:
        """Count it; the container itself. Raises LimitExceeded."""
        self._containers += 1
        self._values += len(container)
        if self._containers > MOST_CONTAINERS or self._values > MOST_VALUES:
            raise _too_many()
        return container


def no_extension(code: int, _: bytes) -> object:
    """Refuse a value of a type of msgpack's that applications define."""
    raise ValueError(f"extension type {code} is not taken")


def _too_many() -> LimitExceeded:
    return LimitExceeded(
        f"The body holds more than {MOST_CONTAINERS} lists and objects, or more than {MOST_VALUES} values in them; "
        "send several requests.",
        param="body",
    )
