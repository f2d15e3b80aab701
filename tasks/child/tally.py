"""What this worker has done since it started, counted for Prometheus and told with each heartbeat.

Histograms are plain counts, one for each upper bound and one beyond; the bounds travel with them, so that a reader of
another version still reads them right.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from engine.types import Batch
from tasks.jobs import State
from tasks.messages import Completion

STAGES = ("admit", "queue", "load", "batch_wait", "device", "commit", "total")
"""The parts of a job's time, and the whole."""

SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0)
ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
TOKENS = (16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144)


class Counts:
    """A histogram over fixed upper bounds, each included in its class."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class Tally:
    """Thread-safe. Every method takes some microseconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stages: dict[tuple[str, ...], Counts] = {}
        self._items: dict[tuple[str, ...], Counts] = {}
        self._tokens: dict[tuple[str, ...], Counts] = {}
        self._ended: Counter[tuple[str, ...]] = Counter()

    def batch(self, batch: Batch) -> None:
        """Count a batch by its items, and by the tokens that were computed: with padding where there was any."""
        key = (batch.verb.value,)
        with self._lock:
            _of(self._items, key, ITEMS).add(len(batch.entries))
            _of(self._tokens, key, TOKENS).add(batch.computed)

    def ended(self, completion: Completion, state: State, commit_s: float) -> None:
        """Count a job whose end is written. `commit_s` is what the writing took, which its timings cannot hold."""
        job = completion.submission
        late = {"commit": commit_s, "total": commit_s}
        with self._lock:
            self._ended[job.verb.value, job.lane.value, state.value] += 1
            for stage in STAGES:
                seconds = completion.timings.get(f"{stage}_ms", 0.0) / 1000.0 + late.get(stage, 0.0)
                _of(self._stages, (job.verb.value, job.lane.value, stage), SECONDS).add(seconds)

    def told(self) -> dict[str, Any]:
        """The counts as a heartbeat carries them: `le` are the bounds, `of` rows of labels, counts and sum."""
        with self._lock:
            return {
                "stages": _table(SECONDS, self._stages),
                "batch_items": _table(ITEMS, self._items),
                "batch_tokens": _table(TOKENS, self._tokens),
                "ended": [[*key, count] for key, count in self._ended.items()],
            }


def _of(table: dict[tuple[str, ...], Counts], key: tuple[str, ...], bounds: Sequence[float]) -> Counts:
    found = table.get(key)
    if found is None:
        found = table[key] = Counts(bounds)
    return found


def _table(bounds: Sequence[float], table: Mapping[tuple[str, ...], Counts]) -> dict[str, Any]:
    return {
        "le": list(bounds),
        "of": [[*key, list(counts.counts), round(counts.total, 6)] for key, counts in table.items()],
    }
