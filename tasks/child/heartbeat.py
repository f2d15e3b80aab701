"""What this worker tells the rest: that it lives, what its models are, what its device holds, what waits.

Written to one hash in Valkey every few seconds and read by the API for `/livez`, `/v1/models` and `/metrics`. A
snapshot probes the device, so a beat that arrives is proof that the device answers.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, Protocol

import msgpack

from tasks import keys

log = logging.getLogger(__name__)

EVERY_S = 2.0


class Snapshotting(Protocol):
    """The part of the engine that a beat needs."""

    def snapshot(self) -> Any:
        """The engine's state, with a fresh probe of its device."""


def describe(snapshot: Any, *, name: str, held: int, now: float) -> dict[str, Any]:
    """The map of one beat. Tuples and dataclasses become lists and maps; enums become their values."""
    body = asdict(snapshot) if is_dataclass(snapshot) and not isinstance(snapshot, type) else dict(snapshot)
    return {"name": name, "at": now, "pid": os.getpid(), "held": held, **_plain(body)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if isinstance(value, str | int | float | bool) or value is None:
        return str(value) if isinstance(value, str) else value
    return str(value)


class Heartbeat:
    """A thread that beats until it is closed. Valkey being away costs beats, nothing else."""

    def __init__(self, engine: Snapshotting, redis: Any, *, name: str, held: Any) -> None:
        self._engine = engine
        self._redis = redis
        self._name = name
        self._held = held
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread; the first beat goes out at once."""
        self._thread.start()

    def close(self) -> None:
        """Take this worker off the list and end the thread."""
        self._closed.set()
        self._thread.join(EVERY_S)
        try:
            self._redis.hdel(keys.WORKERS, self._name)
        except Exception as error:  # noqa: BLE001 - the entry carries its time and counts as dead soon
            log.warning("could not leave the list of workers: %s", type(error).__name__)

    def _run(self) -> None:
        while True:
            try:
                body = describe(self._engine.snapshot(), name=self._name, held=len(self._held), now=time.time())
                self._redis.hset(keys.WORKERS, self._name, msgpack.packb(body))
            except Exception as error:  # noqa: BLE001 - a missed beat is what tells the others
                log.warning("no heartbeat: %s", type(error).__name__)
            if self._closed.wait(EVERY_S):
                return
