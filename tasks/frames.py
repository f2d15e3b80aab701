"""What the Celery parent and its engine child say to each other over their socket: length-prefixed msgpack lists.

Parent to child:
    ["jobs", [[id, message, lost]]]   run these; `lost` tells of an earlier delivery: 0 none, 1 one whose fate is
                                      unknown, 2 it was in a running batch when a child died, 3 in one over its limit,
                                      -1 it had started and was in none
    ["cancel", [id…]]                 drop these if they have not ended; answered by "done" with status "dropped"
    ["hung", [model…], limit_s]       the loads of these were still running after limit_s; do not try them for a while
    ["losses", {fate: count}]         how earlier children ended: died, device, limit, start
    ["handback"]                      return every job that has not started, and take no more; answered by "returned"
    ["stop"]                          end the process once nothing runs

Child to parent:
    ["ready", pid, lanes]               it takes work, and runs so many batches at once
    ["started", batch, [id…], limit_s]  a forward pass begins; kill the child if it does not end in limit_s
    ["ended", batch]
    ["loading", model, limit_s]         a load begins, under the same rule
    ["loaded", model]
    ["residents", {model: load_s}]      the models on the device now, and what the last load of each took
    ["beside", [model…]]                those that leave the device to others while they work, step by step or on the
                                      host's cores; told before "residents"
    ["knows", [model…], more]           the models of its catalog, told again when they change; `more` if it also finds
                                        those that no YAML names, by `id@revision`
    ["unable", [model…]]                those that it cannot have now: too large, or not tried again yet after a failure
    ["done", [[id, status, runtime_s, code]…]]  committed; status is succeeded, failed or dropped; ack now
    ["returned", [id…]]                 never started; put them back in their queues unchanged
    ["lost", reason]                    the device cannot compute any more; restart me
    ["refused", code, message]          it cannot start with these settings on this machine, and ends
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgpack

_HEAD = struct.Struct(">I")
MAX_FRAME = 1 << 30


def encode(*parts: Any) -> bytes:
    """One frame as bytes."""
    body = msgpack.packb(parts)
    return bytes(_HEAD.pack(len(body)) + body)


class Decoder:
    """Cuts a byte stream into frames. Feed it what arrived; it yields what is complete and keeps the rest."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """The frames completed by `data`. Raises ValueError on a length no peer of ours would send."""
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self._buffer)
            if length > MAX_FRAME:
                raise ValueError("frame too long")
            end = _HEAD.size + length
            if len(self._buffer) < end:
                return
            frame: list[Any] = msgpack.unpackb(bytes(self._buffer[_HEAD.size : end]))
            del self._buffer[:end]
            yield frame
