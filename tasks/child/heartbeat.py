"""What this worker tells the rest: that it lives, what its models are, what its device holds, what waits.

Written to one hash in Valkey every few seconds and read by the API for `/livez`, `/v1/models`, `/v1/residency`,
`/metrics` and the refusal of models that fit nowhere. A snapshot probes the device, so a beat that arrives is proof
that the device answers.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sized
from dataclasses import asdict
from typing import Any

import msgpack
from redis import Redis

from engine.engine import Engine
from engine.snapshot import RATIOS, EngineSnapshot, ModelState, ModelWork
from tasks import keys
from tasks.child.tally import Tally
from tasks.errors import as_data

log = logging.getLogger(__name__)

EVERY_S = 2.0


def describe(
    snapshot: EngineSnapshot,
    *,
    name: str,
    held: int,
    wall: float,
    clock: float,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The map of one beat. Moments on the engine's clock become Unix seconds; `wall` and `clock` are now on both.

    Models that nobody ever asked for are not in it. `more` is added as it is.
    """
    return {
        "name": name,
        "at": wall,
        "pid": os.getpid(),
        "device": snapshot.device,
        "kind": snapshot.kind,
        "models": [_model(model, wall - clock) for model in snapshot.models],
        "ledger": asdict(snapshot.ledger),
        "stats": asdict(snapshot.batches),
        "waiting": snapshot.waiting_items,
        "running": snapshot.running,
        "sequences": snapshot.sequences,
        "held": held,
        "lost": snapshot.lost,
        "too_large": dict(snapshot.too_large),
        "ratio_le": list(RATIOS),
        **(more or {}),
    }


def _model(model: ModelState, offset: float) -> dict[str, Any]:
    gone = model.departure
    told = {
        "key": model.model,
        "state": model.phase.value,
        "bytes": model.bytes,
        "leases": model.leases,
        "pinned": model.pinned,
        "loads": model.loads,
        "evictions": model.evictions,
        "load_s": model.load_s,
        "last_used": _moment(model.last_used, offset),
        "last_error": None if model.last_error is None else as_data(model.last_error),
        "waiting": model.waiting,
    }
    more = {
        "estimate": model.estimate,
        "activations": model.activations,
        "host_bytes": model.host_bytes,
        "restores": model.restores,
        "restore_s": model.restore_s,
        "loading_s": model.loading_s,
        "evicted": {reason.value: count for reason, count in model.evicted.items()},
        "dropped": {reason.value: count for reason, count in model.dropped.items()},
        "departure": None if gone is None else {"at": gone.at + offset, "reason": gone.reason.value, "by": gone.by},
        "retry_at": _moment(model.retry_at, offset),
        "comes_at": _moment(model.comes_at, offset),
        "work": None if model.work is None else _work(model.work),
    }
    # With many models, what says nothing is most of a beat.
    return told | {key: value for key, value in more.items() if value}


def _moment(at: float | None, offset: float) -> float | None:
    return None if at is None else at + offset


def _work(work: ModelWork) -> dict[str, Any]:
    return {**asdict(work), "ratios": list(work.ratios)}


class Heartbeat:
    """A thread that beats until it is closed. Valkey being away costs beats, nothing else.

    `batch_items` is the most that a batch may hold, `lost` how earlier children ended, as the parent tells it. `heard`
    gets each snapshot, before it is sent.
    """

    def __init__(
        self,
        engine: Engine,
        redis: Redis,
        *,
        name: str,
        held: Sized,
        tally: Tally | None = None,
        batch_items: int = 0,
        lost: Mapping[str, int] | None = None,
        heard: Callable[[EngineSnapshot], None] = lambda _: None,
    ) -> None:
        self._heard = heard
        self._engine = engine
        self._redis = redis
        self._name = name
        self._held = held
        self._tally = tally or Tally()
        self._batch_items = batch_items
        self._lost = {} if lost is None else lost
        self._started = time.time()
        self._missed = 0
        self._away_s = 0.0
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
        more = {
            "started": self._started,
            "batch_limit": self._batch_items,
            "missed": {"beats": self._missed, "seconds": round(self._away_s, 3)},
            "children_lost": dict(self._lost),
            "tally": self._tally.told(),
        }
        snapshot = self._engine.snapshot()
        self._heard(snapshot)
        return describe(
            snapshot,
            name=self._name,
            held=len(self._held),
            wall=time.time(),
            clock=time.monotonic(),
            more=more,
        )

    def _run(self) -> None:
        away_since: float | None = None
        while True:
            began = time.monotonic()
            if away_since is not None:
                self._away_s += began - away_since
            try:
                self._redis.hset(keys.WORKERS, self._name, msgpack.packb(self._describe()))
                away_since = None
            except Exception as error:  # noqa: BLE001 - a missed beat is what tells the others
                log.warning("no heartbeat: %s", type(error).__name__)
                self._missed += 1
                away_since = began
            if self._closed.wait(EVERY_S):
                return
