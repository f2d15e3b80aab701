"""Figures and how rounds become rows. Pure.

A reading is one figure of one round. A row is the same figure over all rounds: the median, with the lowest and the
highest beside it, because on a shared machine a single number says little.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class Sense(StrEnum):
    """Which side of a target is good."""

    AT_LEAST = "≥"
    AT_MOST = "≤"


@dataclass(frozen=True, slots=True)
class Target:
    """What the design asks of a figure; `source` says where the number comes from when it is not plain."""

    sense: Sense
    value: float
    source: str = ""

    def reached(self, value: float) -> bool:
        """Whether a figure is on the good side; the bound itself is good."""
        return value >= self.value if self.sense is Sense.AT_LEAST else value <= self.value


def at_least(value: float, source: str = "") -> Target:
    """A target for figures that should be high."""
    return Target(Sense.AT_LEAST, value, source)


def at_most(value: float, source: str = "") -> Target:
    """A target for figures that should be low."""
    return Target(Sense.AT_MOST, value, source)


@dataclass(frozen=True, slots=True)
class Reading:
    """One figure of one round."""

    what: str
    value: float
    unit: str
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One figure over all rounds."""

    case: str
    what: str
    unit: str
    median: float
    low: float
    high: float
    rounds: int
    target: Target | None

    @property
    def reached(self) -> bool | None:
        """Whether the median is on the good side of the target; None without a target."""
        return None if self.target is None else self.target.reached(self.median)


def rows_of(case: str, rounds: Iterable[Sequence[Reading]]) -> list[Row]:
    """The rows of a case, in the order in which its figures first appeared. A round may lack a figure."""
    by_what: dict[str, list[Reading]] = {}
    for readings in rounds:
        for reading in readings:
            by_what.setdefault(reading.what, []).append(reading)
    return [_row(case, group) for group in by_what.values()]


def _row(case: str, group: Sequence[Reading]) -> Row:
    values = [reading.value for reading in group]
    first = group[0]
    return Row(
        case=case,
        what=first.what,
        unit=first.unit,
        median=statistics.median(values),
        low=min(values),
        high=max(values),
        rounds=len(values),
        target=first.target,
    )


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` percent of the samples do not exceed. Raises ValueError without any."""
    if not samples:
        raise ValueError("no samples, so no percentile")
    return float(np.percentile(np.asarray(samples), share, method="inverted_cdf"))


def latency(
    label: str, samples_ms: Sequence[float], p50: Target | None = None, p99: Target | None = None
) -> list[Reading]:
    """The two readings of a set of latencies; none when nothing was measured."""
    if not samples_ms:
        return []
    return [
        Reading(f"{label} p50", percentile(samples_ms, 50), "ms", p50),
        Reading(f"{label} p99", percentile(samples_ms, 99), "ms", p99),
    ]
