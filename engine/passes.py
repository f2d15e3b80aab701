"""What passes over a device came to: running totals, of all and of each model, and lessons for the cost book."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from catalog.schema import Spec
from engine.costs import CostBook, Pass, Ran
from engine.snapshot import RATIOS, ModelWork
from engine.types import BatchStats


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a pass teaches: of what kind it was, or `part` of its time, for which lengths.

    `begun` is what of each had been computed in passes before, where a prompt is read in parts.
    """

    kind: Pass
    lengths: Sequence[int]
    begun: Sequence[int] = ()
    part: float = 1.0


@dataclass(frozen=True, slots=True)
class PassRan:
    """One pass as it was. `lengths` are those it computed, `items` how many it completed.

    `teaches` is what its time is true for: nothing if there was trouble.
    """

    model: str
    lengths: Sequence[int]
    items: int
    padded: bool
    seconds: float
    predicted_ms: float
    threads: int
    crowded: bool
    teaches: Sequence[Lesson]


class Passes:
    """The totals since the process started. Not locked: its owner is."""

    def __init__(self, costs: CostBook) -> None:
        self._costs = costs
        self._stats = BatchStats()
        self._of_model: dict[str, ModelWork] = {}

    @property
    def stats(self) -> BatchStats:
        """A copy of the totals over all models."""
        return replace(self._stats)

    def of_model(self, model: str) -> ModelWork | None:
        """The totals of one model; None if nothing of it ever ran."""
        return self._of_model.get(model)

    def add(self, ran: PassRan, spec: Spec) -> None:
        """Count a pass, and learn from it."""
        real = sum(ran.lengths)
        padded = len(ran.lengths) * max(ran.lengths, default=0) if ran.padded else real
        stats = self._stats
        stats.batches += 1
        stats.items += ran.items
        stats.real_tokens += real
        stats.padded_tokens += padded
        stats.device_s += ran.seconds
        work = self._of_model.get(ran.model) or ModelWork()
        ratios, ratio_sum = list(work.ratios), work.ratio_sum
        if ran.predicted_ms > 0:
            ratio = ran.seconds * 1000.0 / ran.predicted_ms
            ratios[bisect_left(RATIOS, ratio)] += 1
            ratio_sum += ratio
        self._of_model[ran.model] = ModelWork(
            passes=work.passes + 1,
            items=work.items + ran.items,
            real_tokens=work.real_tokens + real,
            padded_tokens=work.padded_tokens + padded,
            seconds=work.seconds + ran.seconds,
            predicted_s=work.predicted_s + ran.predicted_ms / 1000.0,
            ratios=tuple(ratios),
            ratio_sum=ratio_sum,
        )
        for lesson in ran.teaches:
            seconds = lesson.part * ran.seconds
            self._costs.observe(
                Ran(
                    ran.model, lesson.kind, lesson.lengths, ran.padded, seconds, ran.threads, ran.crowded, lesson.begun
                ),
                spec,
            )
