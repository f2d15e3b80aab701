"""What a process of the pool and its owner say to each other: maps in msgpack, each behind its length."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

import msgpack

_LENGTH = struct.Struct("<Q")
MOST_BYTES = 256 * 2**20
"""Of one frame. What is longer is no answer."""


class FrameTooLong(Exception):
    """The frame is longer than any may be."""


def send(line: socket.socket, frame: dict[str, Any], until: float | None = None) -> None:
    """Send a frame. Raises TimeoutError after `until` (monotonic), OSError if the other end is gone."""
    body = msgpack.packb(frame)
    if len(body) > MOST_BYTES:
        raise FrameTooLong
    line.settimeout(_left(until))
    line.sendall(_LENGTH.pack(len(body)) + body)


def receive(line: socket.socket, until: float | None = None) -> dict[str, Any] | None:
    """The next frame; None if the other end is gone. Raises TimeoutError after `until`."""
    head = _exactly(line, _LENGTH.size, until)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > MOST_BYTES:
        raise FrameTooLong
    body = _exactly(line, length, until)
    if body is None:
        return None
    frame: dict[str, Any] = msgpack.unpackb(body, strict_map_key=False)
    return frame


def _exactly(line: socket.socket, count: int, until: float | None) -> bytes | None:
    found = bytearray()
    while len(found) < count:
        line.settimeout(_left(until))
        try:
            part = line.recv(min(count - len(found), 2**20))
        except (ConnectionResetError, BrokenPipeError):
            return None
        if not part:
            return None
        found += part
    return bytes(found)


def _left(until: float | None) -> float | None:
    # Zero would mean not to wait at all, and not to time out.
    return None if until is None else max(0.001, until - time.monotonic())
