"""What a simulated run leaves behind, and its figures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.types import Work
from tests.bench.figures import percentile

CURVE = (*range(0, 90, 5), *range(90, 99), 99.0, 99.5, 99.7, 99.9)


@dataclass(frozen=True, slots=True)
class Load:
    """One load that ended: of which model, when, how long it took, and whether it was a return from host memory."""

    model: str
    ended: float
    seconds: float
    returned: bool


@dataclass(slots=True)
class Record:
    """Everything that happened. What counts is what came, and the device's time, between `since` and `until`.

    `done` has each work with when it ended. `starved_s` is time in which the device stood idle although work waited,
    since its model was not there; `done_ms` the cost of the items that were done.
    """

    since: float
    until: float
    done: list[tuple[Work, float]] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    failed: int = 0
    left: int = 0
    busy_s: float = 0.0
    starved_s: float = 0.0
    done_ms: float = 0.0

    def within(self, begin: float, end: float) -> float:
        """How much of a span counts."""
        return max(0.0, min(end, self.until) - max(begin, self.since))

    def counts(self, at: float) -> bool:
        """Whether a moment counts."""
        return self.since <= at <= self.until


@dataclass(frozen=True, slots=True)
class Figures:
    """One run in numbers. Waits are seconds from arrival to end; `busy` and `starved` are shares of the time.

    `loads_per_minute` counts loads from files per model and minute on average; `most_loads` is the most of any model in
    any 60 seconds, the first included. `most_returns` is the same for returns from host memory. `curve` has the waits
    at the percentiles of CURVE.
    """

    jobs: int
    failed: int
    left: int
    done_ms: float
    p50: float
    p99: float
    longest: float
    mean: float
    busy: float
    starved: float
    loads_per_minute: float
    most_loads: int
    returns_per_minute: float
    most_returns: int
    curve: tuple[float, ...]


def figures(record: Record, models: int) -> Figures:
    """The figures of a run over `models` models."""
    waits = [ended - work.arrived for work, ended in record.done if work.arrived >= record.since]
    files = [load for load in record.loads if not load.returned]
    returns = [load for load in record.loads if load.returned]
    span = record.until - record.since
    slots = models * span / 60
    return Figures(
        jobs=len(waits),
        failed=record.failed,
        left=record.left,
        done_ms=record.done_ms,
        p50=percentile(waits, 50),
        p99=percentile(waits, 99),
        longest=max(waits),
        mean=sum(waits) / len(waits),
        busy=record.busy_s / span,
        starved=record.starved_s / span,
        loads_per_minute=sum(record.counts(load.ended) for load in files) / slots,
        most_loads=most_within(files, 60.0),
        returns_per_minute=sum(record.counts(load.ended) for load in returns) / slots,
        most_returns=most_within(returns, 60.0),
        curve=tuple(percentile(waits, share) for share in CURVE),
    )


def most_within(loads: Iterable[Load], seconds: float) -> int:
    """The most loads of one model that ended within any window of so many seconds, its end excluded."""
    by_model: dict[str, list[float]] = {}
    for load in loads:
        by_model.setdefault(load.model, []).append(load.ended)
    return max((_densest(times, seconds) for times in by_model.values()), default=0)


def _densest(times: Sequence[float], seconds: float) -> int:
    first = most = 0
    for last, at in enumerate(times):
        while at - times[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
