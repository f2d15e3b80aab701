"""Which workers live and what they hold, from their heartbeats."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tasks import keys
from tasks.errors import BrokerUnavailable

log = logging.getLogger(__name__)

DEAD_AFTER_S = 15.0
"""A worker whose last beat is older is not there."""

LOOK_S = 5.0
"""How often the hardware that prices are made for is looked up."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One live worker as its last heartbeat tells it. Sizes are bytes."""

    name: str
    age_s: float
    device: str
    models: Sequence[Mapping[str, Any]] = ()
    ledger: Mapping[str, Any] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)
    waiting: int = 0
    running: int = 0
    held: int = 0
    lost: bool = False
    """Whether its device cannot compute any more: it beats, but runs nothing until it is restarted."""

    @property
    def kind(self) -> str:
        """`cpu` or `cuda`: what its milliseconds are predicted for."""
        return self.device.partition(":")[0] or "cpu"


class Presence:
    """Reads the heartbeats. `kind` is the device that most likely runs the next job, as of the last look."""

    def __init__(self, redis: Redis, clock: Callable[[], float] = time.time) -> None:
        self._redis = redis
        self._clock = clock
        self.kind = "cpu"
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Keep `kind` up to date until closed."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="presence")

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def live(self) -> list[Worker]:
        """The live workers by name. Raises BrokerUnavailable."""
        try:
            beats = await self._redis.hgetall(keys.WORKERS)
        except (RedisError, OSError) as error:
            raise BrokerUnavailable("The heartbeats cannot be read: Valkey cannot be reached.") from error
        now = self._clock()
        workers = [
            worker
            for beat in beats.values()
            if isinstance(beat, bytes) and (worker := read_beat(beat, now)) is not None
        ]
        self.kind = _kind(workers, self.kind)
        return sorted(workers, key=lambda worker: worker.name)

    async def _run(self) -> None:
        while True:
            try:
                await self.live()
            except BrokerUnavailable:
                log.debug("no heartbeats can be read just now")
            await asyncio.sleep(LOOK_S)


def read_beat(beat: bytes, now: float) -> Worker | None:
    """The worker of one heartbeat; None when it is too old or cannot be read."""
    try:
        body = msgpack.unpackb(beat)
        age_s = now - float(body["at"])
        if age_s > DEAD_AFTER_S:
            return None
        return Worker(
            name=str(body["name"]),
            age_s=max(0.0, age_s),
            device=str(body.get("device", "cpu")),
            models=body.get("models") or (),
            ledger=body.get("ledger") or {},
            stats=body.get("stats") or {},
            waiting=int(body.get("waiting") or 0),
            running=int(body.get("running") or 0),
            held=int(body.get("held") or 0),
            lost=bool(body.get("lost")),
        )
    except (ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException):
        log.warning("a heartbeat could not be read")
        return None


def _kind(workers: Sequence[Worker], last: str) -> str:
    """The fastest hardware there is gets the work first; without any worker the last answer stands."""
    kinds = {worker.kind for worker in workers}
    return "cuda" if "cuda" in kinds else next(iter(kinds), last)
