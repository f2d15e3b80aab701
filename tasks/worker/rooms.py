"""What there is room for in a worker's hand, by whether a job's model is there. Pure.

Jobs of models that the child has share one room. The others wait for a load, a pause or a hang to end, which may take
minutes: they have a room of their own, or a worker with its hands full of them would stop. Of that room each model has
a part in each lane, enough for a few full batches once it is there and no more than what it leaves to others, and the
last quarter is for first jobs alone: without one nobody loads the model. What finds no room there stays in its queue:
other workers may take it, and we do when the model has come.

So have jobs of models that work *beside* the device, step by step or on the host's cores: many of them are in hand for
long, and a stock of them would keep out all that the device could do meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from catalog.terms import Lane
from tasks.plan import Plan, Section, Source
from tasks.queues import LANES, split

BESIDE = 32
"""Jobs of a model that works beside the device take so small a part of their room: its sequences go on side by side."""


class Job(Protocol):
    """What counts of a job in hand."""

    lane: Lane
    model: str
    cost_ms: float
    started: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a worker holds: milliseconds of predicted work for each batch it runs at once, and jobs.

    Zero `lanes` leave it to the device: they count as one until its child says how many it has. Up to half of the jobs
    may be of models that are not there; when a model leaves while its jobs are in hand, that half comes on top.
    """

    pull_ms: float
    pull_jobs: int
    lanes: int

    def counted(self, job: Job, *, beside: bool) -> float:
        """What a job takes of a room: at most `pull_ms`, and where others work beside it only a part of that."""
        ms = min(job.cost_ms, self.pull_ms)
        return ms / BESIDE if beside else ms

    @property
    def room_ms(self) -> float:
        """All the work a worker holds when it is full."""
        return self.pull_ms * max(1, self.lanes)

    @property
    def pull_most(self) -> int:
        """The most jobs in one pull, so that one that does not know what waits leaves half of the absent's room."""
        return max(1, self.pull_jobs // 4)

    @property
    def absent_jobs(self) -> int:
        """Jobs of models that are not there, in all."""
        return max(1, self.pull_jobs // 2)

    @property
    def absent_each(self) -> int:
        """Of one of these models, in one lane."""
        return max(1, self.pull_jobs // 8)

    @property
    def absent_each_ms(self) -> float:
        """The same in milliseconds; four such parts are the whole."""
        return self.room_ms / 4


@dataclass(slots=True)
class Sum:
    """What some jobs add up to."""

    jobs: int = 0
    ms: float = 0.0
    started_ms: float = 0.0

    def add(self, job: Job, counted_ms: float, sign: int) -> None:
        """Count a job in, or with -1 out."""
        ms = sign * counted_ms
        self.jobs += sign
        self.ms += ms
        if job.started:
            self.started_ms += ms
        if self.jobs == 0:
            # So that rounding never adds up.
            self.ms = self.started_ms = 0.0


@dataclass(frozen=True, slots=True)
class Absent:
    """The room for jobs of models that are not there: what is free in all, and what each has in hand, by lane."""

    limits: Limits
    present: frozenset[str]
    jobs: int
    ms: float
    held: Mapping[tuple[str, Lane], Sum]

    def of(self, model: str, lane: Lane, jobs: int, ms: float) -> tuple[int, float, int]:
        """Jobs, milliseconds and the least that may be taken of a model, with so much free in all."""
        held = self.held.get((model, lane)) or Sum()
        first = int(held.jobs == 0 and jobs > 0)
        spare = jobs - self.limits.absent_jobs // 4
        some = min(self.limits.absent_each - held.jobs, (spare - held.jobs) // 2)
        return max(first, some), min(self.limits.absent_each_ms - held.ms, (ms - held.ms) / 2), first


@dataclass(slots=True)
class Rooms:
    """The account of the jobs in hand. `present` are the child's models, `beside` those with a room of their own."""

    limits: Limits
    present: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()
    waiting: int = 0
    """Jobs of these that have not started."""
    lanes: dict[Lane, Sum] = field(default_factory=lambda: {lane: Sum() for lane in LANES})
    held: dict[tuple[str, Lane], Sum] = field(default_factory=dict)
    """Jobs of other models, and of those beside."""

    def count(self, job: Job, sign: int) -> None:
        """Take a job in, or with -1 out."""
        beside = job.model in self.beside
        counted = self.limits.counted(job, beside=beside)
        if job.model in self.present and not beside:
            self.lanes[job.lane].add(job, counted, sign)
            self.waiting += 0 if job.started else sign
            return
        key = job.model, job.lane
        total = self.held.setdefault(key, Sum())
        total.add(job, counted, sign)
        if not total.jobs:
            del self.held[key]

    def recount(self, present: Iterable[str], jobs: Iterable[Job]) -> None:
        """Other models are there now, or others are beside: count all that is in hand anew."""
        self.present, self.waiting = frozenset(present), 0
        self.lanes, self.held = {lane: Sum() for lane in LANES}, {}
        for job in jobs:
            self.count(job, 1)

    @property
    def interactive_ms(self) -> float:
        """What the interactive lane has; bulk jobs that have not started are not in its way."""
        return self.limits.room_ms - self.lanes[Lane.INTERACTIVE].ms - self.lanes[Lane.BULK].started_ms

    @property
    def bulk_ms(self) -> float:
        """What all jobs leave for the bulk lane."""
        bulk = self.lanes[Lane.BULK]
        return self.interactive_ms - bulk.ms + bulk.started_ms

    @property
    def jobs(self) -> int:
        """How many more jobs may be held."""
        others = min(sum(total.jobs for total in self.held.values()), self.limits.pull_jobs // 2)
        return self.limits.pull_jobs - sum(total.jobs for total in self.lanes.values()) - others

    @property
    def absent(self) -> Absent:
        """The room for the jobs of other models."""
        limits, held = self.limits, self.held
        jobs = limits.absent_jobs - sum(total.jobs for total in held.values())
        ms = 4 * limits.absent_each_ms - sum(total.ms for total in held.values())
        return Absent(limits, self.present - self.beside, max(0, jobs), max(0.0, ms), held)


def apart(plan: Plan, waiting: Mapping[tuple[str, str], int], absent: Absent) -> tuple[Plan, int]:
    """A plan by model with a section for each model that is not there, in each lane before the section of the others.

    `waiting` is how many messages each queue has of each model. Also how many of them have to stay for want of room.
    """
    sections, left = list[Section](), 0
    jobs, ms = absent.jobs, absent.ms
    for section in plan.sections:
        here, away = list[Source](), dict[tuple[str, Lane], list[Source]]()
        for source in section.sources:
            lane = _lane(source.queue)
            if lane is None or source.models is None:
                here.append(source)
                continue
            there = tuple(model for model in source.models if not model or model in absent.present)
            if there:
                here.append(replace(source, models=there))
            for model in source.models:
                if model not in there:
                    away.setdefault((model, lane), []).append(replace(source, models=(model,)))
        for (model, lane), sources in away.items():
            wanted = [waiting.get((source.queue, model), 0) for source in sources]
            most, most_ms, least = absent.of(model, lane, jobs, ms)
            some = min(most, sum(wanted))
            left += sum(wanted) - some
            if some <= 0:
                continue
            if most_ms <= 0 and not least:
                left += some
                continue
            sections.append(Section(tuple(sources), most_ms, some, least, own=True))
            jobs -= some
            ms -= min(max(0.0, most_ms), sum(s.typical_ms * n for s, n in zip(sources, wanted, strict=True)))
        if here:
            sections.append(Section(tuple(here), section.room_ms, section.jobs, section.least))
    return replace(plan, sections=tuple(sections)), left


def _lane(queue: str) -> Lane | None:
    try:
        return split(queue)[0]
    except ValueError:
        return None
