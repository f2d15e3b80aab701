"""What this worker tells the rest: that it lives, what its models are, what its device holds, what waits.

Written to one hash in Valkey every few seconds and read by the API for `/livez`, `/v1/models` and `/metrics`. A
snapshot probes the device, so a beat that arrives is proof that the device answers.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sized
from dataclasses import asdict
from typing import Any

import msgpack
from redis import Redis

from engine.engine import Engine
from engine.snapshot import EngineSnapshot, ModelState
from tasks import keys
from tasks.errors import as_data

log = logging.getLogger(__name__)

EVERY_S = 2.0


def describe(snapshot: EngineSnapshot, *, name: str, held: int, wall: float, clock: float) -> dict[str, Any]:
    """The map of one beat. Moments on the engine's clock become Unix seconds; `wall` and `clock` are now on both."""
    return {
        "name": name,
        "at": wall,
        "pid": os.getpid(),
        "device": snapshot.device,
        "models": [_model(model, wall - clock) for model in snapshot.models],
        "ledger": asdict(snapshot.ledger),
        "stats": asdict(snapshot.batches),
        "waiting": snapshot.waiting_items,
        "running": snapshot.running,
        "held": held,
        "lost": snapshot.lost,
    }


def _model(model: ModelState, offset: float) -> dict[str, Any]:
    return {
        "key": model.model,
        "state": model.phase.value,
        "bytes": model.bytes,
        "leases": model.leases,
        "pinned": model.pinned,
        "loads": model.loads,
        "evictions": model.evictions,
        "load_s": model.load_s,
        "last_used": None if model.last_used is None else model.last_used + offset,
        "last_error": None if model.last_error is None else as_data(model.last_error),
        "waiting": model.waiting,
    }


class Heartbeat:
    """A thread that beats until it is closed. Valkey being away costs beats, nothing else."""

    def __init__(self, engine: Engine, redis: Redis, *, name: str, held: Sized) -> None:
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

    def _describe(self) -> dict[str, Any]:
        return describe(
            self._engine.snapshot(),
            name=self._name,
            held=len(self._held),
            wall=time.time(),
            clock=time.monotonic(),
        )

    def _run(self) -> None:
        while True:
            try:
                self._redis.hset(keys.WORKERS, self._name, msgpack.packb(self._describe()))
            except Exception as error:  # noqa: BLE001 - a missed beat is what tells the others
                log.warning("no heartbeat: %s", type(error).__name__)
            if self._closed.wait(EVERY_S):
                return
