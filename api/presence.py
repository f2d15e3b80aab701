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
from tasks.errors import BrokerUnavailable, ModelTooLarge

log = logging.getLogger(__name__)

DEAD_AFTER_S = 15.0
"""A worker whose last beat is older is not there."""

LOOK_S = 5.0
"""How often it is looked who is there, for what every request needs to know."""

FAILED = "failed"
"""The state of a model that could not be loaded, in a heartbeat."""


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
    hardware: str = "cpu"
    """What its device is, as costs are kept by."""
    lost: bool = False
    """Whether its device cannot compute any more: it beats, but runs nothing until it is restarted."""
    sequences: int = 0
    started: float | None = None
    """When its engine child started, in Unix seconds."""
    too_large: Mapping[str, str] = field(default_factory=dict)
    """Models that can never fit its budget, each with the reason."""
    children_lost: Mapping[str, int] = field(default_factory=dict)
    missed: Mapping[str, float] = field(default_factory=dict)
    batch_limit: int = 0
    tally: Mapping[str, Any] = field(default_factory=dict)
    ratio_le: Sequence[float] = ()

    def refusal(self, model: str) -> str | None:
        """Why the model, by its one spelling, can never run here; None if it may."""
        reason = self.too_large.get(model)
        if reason is not None:
            return reason
        for one in self.models:
            error = one.get("last_error") or {}
            if one.get("key") == model and one.get("state") == FAILED and error.get("code") == ModelTooLarge.code:
                return str(error.get("message") or ModelTooLarge().message)
        return None


class Presence:
    """Reads the heartbeats. `hardware` is the kinds of it that live workers have, as of the last look."""

    def __init__(self, redis: Redis, clock: Callable[[], float] = time.time) -> None:
        self._redis = redis
        self._clock = clock
        self.hardware: frozenset[str] = frozenset()
        self._last: Sequence[Worker] = ()
        self._looked = float("-inf")
        self._looks = self._newest = 0
        self._looking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Keep `hardware` up to date until closed."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="presence")

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def live(self) -> list[Worker]:
        """The live workers by name. Raises BrokerUnavailable."""
        self._looks += 1
        look = self._looks
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
        workers.sort(key=lambda worker: worker.name)
        # Looks may overlap: one that began before another says nothing newer, if it ends after it.
        if look > self._newest:
            self._newest = look
            self.hardware = frozenset(worker.hardware for worker in workers if not worker.lost)
            self._last = workers
            self._looked = time.monotonic()
        return workers

    async def lately(self, within_s: float) -> Sequence[Worker]:
        """As `live`, or what it gave to anybody within these seconds: many who watch cost one look."""
        async with self._looking:
            return self._last if time.monotonic() - self._looked <= within_s else await self.live()

    async def admit(self, model: str) -> None:
        """Let a job of this model in unless every live worker says that it can never fit; then raise ModelTooLarge.

        Free for a model that fits somewhere. Who is there is looked up anew before one is refused, since the worker
        that it fits may have just come. With no worker, or none that can be heard of, all models are let in.
        """
        if too_large(model, self._last) is None:
            return
        try:
            reason = too_large(model, await self.live())
        except BrokerUnavailable:
            return
        if reason is not None:
            raise ModelTooLarge(reason, param="model")

    async def _run(self) -> None:
        while True:
            try:
                await self.live()
            except BrokerUnavailable:
                log.debug("no heartbeats can be read just now")
            await asyncio.sleep(LOOK_S)


def too_large(model: str, workers: Sequence[Worker]) -> str | None:
    """Why the model fits none of these workers, in the words of the first; None if it may fit one, or there is none."""
    reasons = [worker.refusal(model) for worker in workers]
    return None if None in reasons or not reasons else reasons[0]


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
            hardware=str(body.get("kind") or str(body.get("device", "cpu")).partition(":")[0]),
            lost=bool(body.get("lost")),
            sequences=int(body.get("sequences") or 0),
            started=None if body.get("started") is None else float(body["started"]),
            too_large=body.get("too_large") or {},
            children_lost=body.get("children_lost") or {},
            missed=body.get("missed") or {},
            batch_limit=int(body.get("batch_limit") or 0),
            tally=body.get("tally") or {},
            ratio_le=body.get("ratio_le") or (),
        )
    except (ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException):
        log.warning("a heartbeat could not be read")
        return None
