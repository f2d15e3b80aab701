"""Jobs that wait for a thread of their own to see to them, and may be taken back until it does."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.messages import Submission
from tasks.store.claim import Lost


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that came in; `lost` says what is known of an earlier delivery (`tasks.store.claim.Lost`)."""

    key: str
    job: Submission
    lost: int
    received: float

    @property
    def needs_claim(self) -> bool:
        """Whether another copy of this job may be running or may have ended it."""
        return self.lost != Lost.NO or self.job.checked

    @property
    def needs_rest(self) -> bool:
        """Whether inputs and options must be read from the row."""
        return not self.job.inputs and self.job.inputs_blob is None

    @property
    def needs_blob(self) -> bool:
        """Whether the inputs must be read from the blob store."""
        return not self.job.inputs and self.job.inputs_blob is not None


class Inbox(ABC):
    """A line of jobs and its thread. `waiting` and `closed` are guarded by `condition`."""

    def __init__(self, name: str) -> None:
        self.waiting: list[Arrival] = []
        self.condition = threading.Condition()
        self.closed = False
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    @abstractmethod
    def run(self) -> None:
        """See to what waits, until closed. In the thread."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, arrivals: Sequence[Arrival]) -> None:
        """Hand over jobs. Returns at once."""
        with self.condition:
            self.waiting.extend(arrivals)
            self.condition.notify()

    def take_back(self, keys: Sequence[str] | None = None) -> list[str]:
        """Forget those of `keys` (or all) that still wait here, and name them."""
        with self.condition:
            wanted = None if keys is None else set(keys)
            taken = [a.key for a in self.waiting if wanted is None or a.key in wanted]
            gone = set(taken)
            self.waiting = [a for a in self.waiting if a.key not in gone]
            return taken

    def close(self) -> None:
        """End the thread; what waits is delivered again by the broker."""
        with self.condition:
            self.closed = True
            self.condition.notify()
