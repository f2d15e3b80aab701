"""What the engine child publishes after a commit, and what the API processes read.

Three kinds, each one message per batch. A *change* goes to every API process: enough to wake long polls and event
streams, which then read the row. A *reply* goes to the one process whose callers wait for these jobs: enough to answer
without the database. Both are hints: a lost one costs a wait, never a result, since waiters read the row after each
reconnect. A *piece* goes to every API process too, before its job ends: more of a text that is being generated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgpack

INLINE_RESULT_BYTES = 32 * 1024
"""A result up to this size travels in the reply; a larger one is read from its row."""


@dataclass(frozen=True, slots=True)
class Change:
    """A job changed its state, or made progress while running (`items_done` of its items)."""

    id: UUID
    state: str
    version: int
    items_done: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """How a job that someone waits for ended. `result` is None when there is none or when it is too large to travel."""

    id: UUID
    state: str
    version: int
    attempt: int
    fence: int
    items_failed: int
    error: Mapping[str, Any] | None
    device_ms: float
    started: float
    finished: float
    expires: float
    worker: str
    result: bytes | None
    has_result: bool
    timings: Mapping[str, float] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Piece:
    """More of the text of one item: `text` begins at character `start` of it. One that was lost is made good later."""

    id: UUID
    item: int
    start: int
    text: str


def pack_pieces(pieces: Sequence[Piece]) -> bytes:
    """One message for the channel `keys.PIECES`."""
    return bytes(msgpack.packb([(p.id.bytes, p.item, p.start, p.text) for p in pieces]))


def unpack_pieces(data: bytes) -> list[Piece]:
    """The pieces of one message."""
    return [Piece(UUID(bytes=raw), *rest) for raw, *rest in msgpack.unpackb(data)]


def pack_changes(changes: Sequence[Change]) -> bytes:
    """One message for the channel `keys.CHANGES`."""
    return bytes(msgpack.packb([(c.id.bytes, c.state, c.version, c.items_done) for c in changes]))


def unpack_changes(data: bytes) -> list[Change]:
    """The changes of one message."""
    return [Change(UUID(bytes=raw), *rest) for raw, *rest in msgpack.unpackb(data)]


_REPLY = tuple(Reply.__dataclass_fields__)[1:]


def pack_replies(replies: Sequence[Reply]) -> bytes:
    """One message for the channel `keys.reply(instance)`."""
    return bytes(msgpack.packb([(r.id.bytes, *(getattr(r, name) for name in _REPLY)) for r in replies]))


def unpack_replies(data: bytes) -> list[Reply]:
    """The replies of one message."""
    return [Reply(UUID(bytes=raw), *rest) for raw, *rest in msgpack.unpackb(data)]
