"""The jobs a child holds: what each is, where it stands, and when it must be marked as running.

One lock guards the table; every method is a few dictionary operations. Times are seconds on the engine's clock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.messages import Submission


@dataclass(slots=True)
class Held:
    """One job in hand. `received` is a wall-clock time, `arrived` and `started` are on the engine's clock.

    `version` is that of its row once the row says that it runs, under a lease of ours; 0 until then. `done` counts the
    items that have run.
    """

    job: Submission
    items: Sequence[dict[str, Any]]
    received: float
    arrived: float
    started: float | None = None
    version: int = 0
    done: int = 0
    ended: bool = False

    @property
    def marked(self) -> bool:
        """Whether its row says that it runs here."""
        return self.version > 0

    @property
    def suspect(self) -> bool:
        """Whether an earlier delivery of this job was lost: it is marked as running before it may do so again."""
        return self.job.fence > 1


class Hand:
    """The table of held jobs by id (the job's UUID as text)."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, key: str, held: Held) -> bool:
        """Hold a job. False if it is held already, by another copy of its message."""
        with self._lock:
            if key in self._held:
                return False
            self._held[key] = held
            return True

    def get(self, key: str) -> Held | None:
        """The job under this id, if it is in hand."""
        return self._held.get(key)

    def started(self, keys: Iterable[str], now: float) -> list[Held]:
        """Note that these jobs' first item is about to run. Returns those that run for the first time."""
        with self._lock:
            fresh = []
            for key in keys:
                held = self._held.get(key)
                if held is not None and held.started is None:
                    held.started = now
                    fresh.append(held)
            return fresh

    def ran(self, counts: Mapping[str, int]) -> list[Held]:
        """Note that so many items of each job have run. Returns the jobs in hand of which more are to come."""
        with self._lock:
            unfinished = []
            for key, count in counts.items():
                held = self._held.get(key)
                if held is not None:
                    held.done += count
                    if held.done < held.job.items and not held.ended:
                        unfinished.append(held)
            return unfinished

    def ending(self, key: str) -> Held | None:
        """Claim the right to end this job; None if another thread has it or the job is not in hand."""
        with self._lock:
            held = self._held.get(key)
            if held is None or held.ended:
                return None
            held.ended = True
            return held

    def drop(self, keys: Iterable[str]) -> None:
        """Forget these jobs: they were committed, dropped or given back."""
        with self._lock:
            for key in keys:
                self._held.pop(key, None)

    def to_mark(self, started_before: float) -> list[Held]:
        """Jobs that began before this time, have not ended and are not marked as running yet."""
        with self._lock:
            return [
                held
                for held in self._held.values()
                if held.started is not None and held.started <= started_before and not held.marked and not held.ended
            ]

    def marked(self) -> list[Held]:
        """Jobs that are marked as running and have not ended: those whose lease must be renewed."""
        with self._lock:
            return [held for held in self._held.values() if held.marked and not held.ended]
