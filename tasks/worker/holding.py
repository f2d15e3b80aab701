"""What a worker's parent holds: the jobs in its child's hands, their cost, and so what more it pulls and when. Pure.

What waits in a queue can still go to any worker, so a busy one pulls late: it leaves the bells to idle workers, and
looks at the queues only shortly before its device is free. Then it takes a stock, since batches want many jobs.

Two lanes, two rooms. The bulk lane has what all held jobs leave; the interactive lane does not mind bulk jobs that have
not started, so a backfill never keeps it out. One bulk job is always let in, so that it ages and gets its turn. Jobs
whose model is not there take none of these rooms (`tasks.worker.rooms`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar

from catalog.terms import Lane
from tasks.plan import Plan, Section, Source
from tasks.queues import LANES, TYPICAL_MS, split
from tasks.worker.rooms import Absent, Limits, Rooms

R = TypeVar("R")

LEAD_S = 0.25
"""How long before a device should be free its worker begins to look for more."""

HEED_S = 2.0
"""For so long after an interactive job more of them are expected."""

SHY_JOBS = 16
"""Bulk jobs in hand while they are. The host takes some 0.3 ms for each, and what comes meanwhile waits for all."""

_BOUNDLESS_MS = 1e12
_OTHERS = 8
"""Messages in one pull from queues that hold no jobs, if a worker consumes some as well."""

IDLE, FRESH, REPEATED, INTERRUPTED, OVERRAN = -1, 0, 1, 2, 3
"""What the child is told of a job's earlier delivery (`lost` in `tasks.frames`, `Lost` in `tasks.store.claim`)."""


@dataclass(slots=True)
class Held(Generic[R]):
    """One job in hand. `owner` is what its message came as, `data` the message for the child, kept to be sent again."""

    id: str
    owner: R
    data: bytes
    lane: Lane
    model: str
    cost_ms: float
    lost: int = FRESH
    started: bool = False
    batch_s: float | None = None
    """How long its last batch took, once it had one: a large job has many."""
    spent_ms: float = 0.0
    """Its share of the batches that have ended."""


@dataclass(slots=True)
class Running:
    """A batch or a load under way: since when, when it should end, and when it must; on the parent's clock.

    One `beside` the device leaves it to others.
    """

    ids: tuple[str, ...]
    until: float
    began: float = 0.0
    expected: float = 0.0
    beside: bool = False


class Holding(Generic[R]):
    """The table of held jobs. `ready` says whether the child takes work; without it nothing is pulled."""

    def __init__(self, limits: Limits) -> None:
        self.ready = False
        self._held: dict[str, Held[R]] = {}
        self._rooms = Rooms(limits)
        self._batches: dict[object, Running] = {}
        self._loads: dict[str, Running] = {}
        self._models: Counter[str] = Counter()
        self._parallel = max(1, limits.lanes)
        self._seen = -math.inf

    def child_ready(self, lanes: int) -> None:
        """The child takes work, and runs so many batches at once."""
        self.ready = True
        self._rooms.limits = replace(self._rooms.limits, lanes=lanes)
        self._parallel = max(1, lanes)

    def saw_interactive(self, now: float) -> None:
        """An interactive job has come; more may."""
        self._seen = now

    def shy(self, now: float) -> bool:
        """Whether interactive work has been seen lately, so that little of the bulk lane may be in its way."""
        return now - self._seen <= HEED_S

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held[R]]:
        return iter(list(self._held.values()))

    def get(self, key: str) -> Held[R] | None:
        """The job under this id, if it is held."""
        return self._held.get(key)

    def add(self, held: Held[R]) -> None:
        """Hold a job."""
        self._held[held.id] = held
        self._count(held, 1)

    def remove(self, key: str) -> Held[R] | None:
        """Hold it no longer; None if it was not held."""
        held = self._held.pop(key, None)
        if held is not None:
            self._count(held, -1)
        return held

    def residents(self, models: Iterable[str]) -> None:
        """The models that the child has now."""
        self._rooms.recount(models, self._held.values())

    def beside(self, models: Iterable[str]) -> None:
        """The models whose work does not hold the device; `residents` follows."""
        self._rooms.beside = frozenset(models)

    def batch_started(self, batch: object, ids: Sequence[str], limit_s: float, now: float) -> list[Held[R]]:
        """A forward pass began; the jobs of which this is the first."""
        jobs = [held for key in ids if (held := self._held.get(key)) is not None]
        beside = bool(jobs) and all(held.model in self._rooms.beside for held in jobs)
        self._batches[batch] = Running(tuple(ids), now + limit_s, now, now + _expected_s(jobs), beside)
        self._parallel = max(self._parallel, len(self._on_device))
        if not self._rooms.present.issuperset(held.model for held in jobs):
            # A child that does not say what it has shows it.
            self.residents(self._rooms.present.union(held.model for held in jobs))
        fresh = [held for held in jobs if not held.started]
        for held in fresh:
            self._rooms.count(held, -1)
            held.started = True
            self._rooms.count(held, 1)
        return fresh

    def batch_ended(self, batch: object, now: float) -> None:
        """The forward pass is over."""
        running = self._batches.pop(batch, None)
        if running is None:
            return
        took_s = now - running.began
        for key in running.ids:
            if (held := self._held.get(key)) is not None:
                held.batch_s = took_s
                held.spent_ms += took_s * 1000 / len(running.ids)

    def load_started(self, model: str, limit_s: float, now: float) -> None:
        """A model is being loaded."""
        self._loads[model] = Running((), now + limit_s)

    def load_ended(self, model: str) -> None:
        """The load is over, well or not."""
        self._loads.pop(model, None)

    def overdue(self, now: float) -> list[str]:
        """What ran over its limit, in words for the log."""
        batches = [f"batch {name}" for name, running in self._batches.items() if running.until < now]
        return batches + [f"load of {name}" for name, running in self._loads.items() if running.until < now]

    def hung(self, now: float) -> list[str]:
        """The models whose load ran over its limit."""
        return [model for model, running in self._loads.items() if running.until < now]

    def child_lost(self, now: float) -> list[Held[R]]:
        """The child is gone: all that is held, in order, with what its next child must be told of each.

        A job that was in a running batch has spent an attempt. One that had started, but was in none, has not: it is
        idle, whatever its row says of it. One whose model was being loaded may have: its row tells. What was doubtful
        before and has not started stays doubtful, since its row has moved on from its message.
        """
        ran: dict[str, int] = {}
        for running in self._batches.values():
            for key in running.ids:
                ran[key] = max(ran.get(key, 0), OVERRAN if running.until < now else INTERRUPTED)
        for held in self._held.values():
            held.lost = ran.get(held.id, _fate(held, loading=held.model in self._loads))
            held.spent_ms = 0.0
            held.started = False
        self._rooms.beside = frozenset()
        self.residents(())
        self._batches.clear()
        self._loads.clear()
        self.ready = False
        return list(self._held.values())

    @property
    def models(self) -> frozenset[str]:
        """The models of the jobs held and those that are being loaded."""
        return frozenset((*self._models, *self._loads))

    def busy_ms(self, now: float) -> float:
        """Predicted work in hand for each of the device's lanes, less what has been done of it."""
        left = sum(max(0.0, held.cost_ms - held.spent_ms) for held in self._held.values())
        done = sum(now - running.began for running in self._batches.values()) * 1000
        return max(0.0, left - done) / self._parallel

    @property
    def open(self) -> bool:
        """Whether there is room for a job of a model that is there."""
        return self.ready and self._rooms.jobs > 0 and self._rooms.interactive_ms > 0

    @property
    def idle(self) -> bool:
        """Whether the device wants work at once: nothing waits for it, and it could run more than it does.

        What waits for its model does not wait for the device.
        """
        return self._rooms.waiting == 0 and len(self._on_device) < self._parallel

    def wants(self, now: float) -> bool:
        """Whether it is time to look for more: the device is not full, or will soon not be."""
        if not self.open:
            return False
        running = self._on_device
        return len(running) < self._parallel or min(one.expected for one in running) - now <= LEAD_S

    @property
    def _on_device(self) -> list[Running]:
        return [running for running in self._batches.values() if not running.beside]

    def plan(self, queues: Sequence[str], turn: int, *, shy: bool = False) -> Plan:
        """What to pull: the interactive lane first, the buckets of a lane taking turns at being first.

        All that is done to a job on its way costs the host some time, and is done to many at once: a `shy` plan leaves
        so few bulk jobs in hand that an interactive one does not wait long behind them anywhere.
        """
        rooms, limits = self._rooms, self._rooms.limits
        if not self.open:
            return Plan((), limits.pull_ms)
        lanes = _by_lane(tuple(queues))
        room = {Lane.INTERACTIVE: rooms.interactive_ms, Lane.BULK: rooms.bulk_ms}
        # Interactive jobs find a place even when a backfill of tiny jobs has filled the hand.
        most = {Lane.INTERACTIVE: rooms.jobs, Lane.BULK: rooms.jobs - limits.pull_jobs // 8}
        if shy:
            most[Lane.BULK] = min(most[Lane.BULK], SHY_JOBS - rooms.lanes[Lane.BULK].jobs)
        least = {Lane.INTERACTIVE: 0, Lane.BULK: int(rooms.lanes[Lane.BULK].jobs == 0)}
        sections = [
            Section(_turned(lanes[lane], turn), room[lane], most[lane], least[lane])
            for lane in LANES
            if lanes.get(lane) and ((room[lane] > 0 and most[lane] > 0) or least[lane])
        ]
        total = min(rooms.jobs, limits.pull_most)
        if others := lanes.get(None):
            sections.append(Section(_turned(others, turn), _BOUNDLESS_MS, jobs=_OTHERS, own=True))
            total += _OTHERS
        return Plan(tuple(sections), limits.pull_ms, total)

    @property
    def absent(self) -> Absent:
        """The room for jobs of models that are not there."""
        return self._rooms.absent

    @property
    def mixed(self) -> bool:
        """Whether jobs are in hand whose model is not there, so that a pull must know which models it takes."""
        return bool(self._rooms.held)

    def _count(self, held: Held[R], sign: int) -> None:
        self._rooms.count(held, sign)
        self._models[held.model] += sign
        if not self._models[held.model]:
            del self._models[held.model]


def _fate(held: Held[R], *, loading: bool) -> int:
    """What is known of a job that was in no batch when its child died."""
    if held.started and not loading:
        return IDLE
    return REPEATED if held.started or loading or held.lost != FRESH else FRESH


def _expected_s(jobs: Sequence[Held[R]]) -> float:
    """How long a batch of these jobs should take: as they say, or as their batches before this one did."""
    said = sum(held.cost_ms / 1000 for held in jobs if held.batch_s is None)
    return said + max((held.batch_s for held in jobs if held.batch_s is not None), default=0.0)


@lru_cache(maxsize=8)
def _by_lane(queues: tuple[str, ...]) -> Mapping[Lane | None, list[Source]]:
    """The job queues of each lane; under None the others, such as that of the sweeps."""
    lanes: dict[Lane | None, list[Source]] = {}
    for queue in queues:
        try:
            lane, bucket = split(queue)
        except ValueError:
            lanes.setdefault(None, []).append(Source(queue))
        else:
            lanes.setdefault(lane, []).append(Source(queue, TYPICAL_MS[bucket]))
    return lanes


def _turned(sources: list[Source], turn: int) -> tuple[Source, ...]:
    first = turn % len(sources)
    return (*sources[first:], *sources[:first])
