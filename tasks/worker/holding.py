"""What a worker's parent holds: the jobs in its child's hands, their cost, and so what more it pulls and when. Pure.

What waits in a queue can still go to any worker, so a busy one pulls late: it leaves the bells to idle workers, and
looks at the queues only shortly before its device is free. Then it takes a stock, since batches want many jobs.

Two lanes, two rooms. The bulk lane has what all held jobs leave; the interactive lane does not mind bulk jobs that have
not started, so a backfill never keeps it out. One bulk job is always let in, so that it ages and gets its turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar

from catalog.terms import Lane
from tasks.pull_script import Plan, Section, Source
from tasks.queues import LANES, TYPICAL_MS, split

R = TypeVar("R")

LEAD_S = 0.25
"""How long before a device should be free its worker begins to look for more."""

_BOUNDLESS_MS = 1e12
_OTHERS = 8
"""Messages in one pull from queues that hold no jobs, if a worker consumes some as well."""

FRESH, REPEATED, INTERRUPTED, OVERRAN = 0, 1, 2, 3
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


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a worker holds: milliseconds of predicted work for each batch it runs at once, and jobs.

    Zero `lanes` leave it to the device: they count as one until its child says how many it has.
    """

    pull_ms: float
    pull_jobs: int
    lanes: int

    @property
    def room_ms(self) -> float:
        """All the work a worker holds when it is full."""
        return self.pull_ms * max(1, self.lanes)


@dataclass(slots=True)
class _Sum:
    jobs: int = 0
    ms: float = 0.0
    started_ms: float = 0.0


@dataclass(slots=True)
class Running:
    """A batch or a load under way: since when, when it should end, and when it must; on the parent's clock."""

    ids: tuple[str, ...]
    until: float
    began: float = 0.0
    expected: float = 0.0


class Holding(Generic[R]):
    """The table of held jobs. `ready` says whether the child takes work; without it nothing is pulled."""

    def __init__(self, limits: Limits) -> None:
        self.ready = False
        self._limits = limits
        self._held: dict[str, Held[R]] = {}
        self._sums = {lane: _Sum() for lane in LANES}
        self._batches: dict[object, Running] = {}
        self._loads: dict[str, Running] = {}
        self._models: Counter[str] = Counter()
        self._waiting = 0
        self._parallel = max(1, limits.lanes)

    def child_ready(self, lanes: int) -> None:
        """The child takes work, and runs so many batches at once."""
        self.ready = True
        self._limits = replace(self._limits, lanes=lanes)
        self._parallel = max(1, lanes)

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

    def batch_started(self, batch: object, ids: Sequence[str], limit_s: float, now: float) -> list[Held[R]]:
        """A forward pass began; the jobs of which this is the first."""
        jobs = [held for key in ids if (held := self._held.get(key)) is not None]
        self._batches[batch] = Running(tuple(ids), now + limit_s, now, now + _expected_s(jobs))
        self._parallel = max(self._parallel, len(self._batches))
        fresh = [held for held in jobs if not held.started]
        for held in fresh:
            held.started = True
            self._waiting -= 1
            self._sums[held.lane].started_ms += self._counted(held)
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

        A job that was in a running batch has spent an attempt. One that had started, or whose model was being loaded,
        may have: its row tells. What was doubtful before stays doubtful, since its row has moved on from its message.
        """
        ran: dict[str, int] = {}
        for running in self._batches.values():
            for key in running.ids:
                ran[key] = max(ran.get(key, 0), OVERRAN if running.until < now else INTERRUPTED)
        for held in self._held.values():
            doubtful = held.started or held.lost > FRESH or held.model in self._loads
            held.lost = ran.get(held.id, REPEATED if doubtful else FRESH)
            held.spent_ms = 0.0
            if held.started:
                held.started = False
                self._sums[held.lane].started_ms -= self._counted(held)
        self._batches.clear()
        self._loads.clear()
        self._waiting = len(self._held)
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
        """Whether there is room for a job of any lane."""
        return self.ready and len(self._held) < self._limits.pull_jobs and self._interactive_ms > 0

    @property
    def idle(self) -> bool:
        """Whether the device wants work at once: nothing waits for it, and it could run more than it does."""
        return self._waiting == 0 and len(self._batches) < self._parallel

    def wants(self, now: float) -> bool:
        """Whether it is time to look for more: the device is not full, or will soon not be."""
        if not self.open:
            return False
        if len(self._batches) < self._parallel:
            return True
        return min(running.expected for running in self._batches.values()) - now <= LEAD_S

    def plan(self, queues: Sequence[str], turn: int) -> Plan:
        """What to pull: the interactive lane first, the buckets of a lane taking turns at being first."""
        if not self.open:
            return Plan((), self._limits.pull_ms)
        lanes = _by_lane(tuple(queues))
        jobs = self._limits.pull_jobs - len(self._held)
        bulk = self._sums[Lane.BULK]
        room = {Lane.INTERACTIVE: self._interactive_ms, Lane.BULK: self._interactive_ms - bulk.ms + bulk.started_ms}
        # Interactive jobs find a place even when a backfill of tiny jobs has filled the hand.
        most = {Lane.INTERACTIVE: jobs, Lane.BULK: jobs - self._limits.pull_jobs // 8}
        least = {Lane.INTERACTIVE: 0, Lane.BULK: int(bulk.jobs == 0)}
        sections = [
            Section(_turned(lanes[lane], turn), room[lane], most[lane], least[lane])
            for lane in LANES
            if lanes.get(lane) and ((room[lane] > 0 and most[lane] > 0) or least[lane])
        ]
        if others := lanes.get(None):
            sections.append(Section(_turned(others, turn), _BOUNDLESS_MS, jobs=_OTHERS))
        return Plan(tuple(sections), self._limits.pull_ms)

    @property
    def _interactive_ms(self) -> float:
        return self._limits.room_ms - self._sums[Lane.INTERACTIVE].ms - self._sums[Lane.BULK].started_ms

    def _counted(self, held: Held[R]) -> float:
        return min(held.cost_ms, self._limits.pull_ms)

    def _count(self, held: Held[R], sign: int) -> None:
        total = self._sums[held.lane]
        total.jobs += sign
        self._models[held.model] += sign
        if not self._models[held.model]:
            del self._models[held.model]
        if not held.started:
            self._waiting += sign
        total.ms += sign * self._counted(held)
        if held.started:
            total.started_ms += sign * self._counted(held)
        if total.jobs == 0:
            # So that rounding never adds up.
            total.ms = total.started_ms = 0.0


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
