"""The slow way in: jobs whose row must be read before they run.

A job comes this way when its message was delivered before, when another copy of it may exist, when an earlier child
died with it, or when its inputs were too large to travel. All that has gathered is claimed in one transaction.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tasks.db import Database
from tasks.errors import StoreUnavailable
from tasks.messages import Submission
from tasks.notices import Change
from tasks.store.claim import Claimed, Limits, Lost, Verdict, claim, inputs

log = logging.getLogger(__name__)


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
        return self.lost > Lost.NO or self.job.checked

    @property
    def needs_inputs(self) -> bool:
        """Whether the inputs must be read from the row."""
        return not self.job.inputs


class Claimer:
    """A thread that claims what `put` gives it and passes on what may run."""

    def __init__(
        self,
        database: Database,
        *,
        worker: str,
        limits: Limits,
        admit: Callable[[Sequence[Arrival]], None],
        drop: Callable[[Sequence[str]], None],
        changed: Callable[[Sequence[Change]], None],
    ) -> None:
        self._database = database
        self._worker = worker
        self._limits = limits
        self._admit = admit
        self._drop = drop
        self._changed = changed
        self._waiting: list[Arrival] = []
        self._condition = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="claimer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, arrivals: Sequence[Arrival]) -> None:
        """Hand over jobs to be looked up. Returns at once."""
        with self._condition:
            self._waiting.extend(arrivals)
            self._condition.notify()

    def take_back(self, keys: Sequence[str] | None = None) -> list[str]:
        """Forget those of `keys` (or all) that still wait here, and name them."""
        with self._condition:
            wanted = None if keys is None else set(keys)
            taken = [a.key for a in self._waiting if wanted is None or a.key in wanted]
            gone = set(taken)
            self._waiting = [a for a in self._waiting if a.key not in gone]
            return taken

    def close(self) -> None:
        """End the thread; what waits is delivered again by the broker."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._waiting and not self._closed:
                    self._condition.wait()
                if self._closed:
                    return
                arrivals, self._waiting = self._waiting, []
            try:
                self._look_up(arrivals)
            except StoreUnavailable:
                log.warning("database away; %d jobs wait to be claimed", len(arrivals))
                self.put(arrivals)
            except Exception:
                log.exception("%d jobs could not be claimed; the sweeper sends them again", len(arrivals))
                self._drop([a.key for a in arrivals])

    def _look_up(self, arrivals: Sequence[Arrival]) -> None:
        plain = [a for a in arrivals if not a.needs_claim]
        if plain:
            found = self._database.run(inputs, [a.job.id for a in plain])
            self._admit([replace(a, job=replace(a.job, inputs=found[a.job.id])) for a in plain if a.job.id in found])
            self._drop([a.key for a in plain if a.job.id not in found])
        doubtful = [a for a in arrivals if a.needs_claim]
        if doubtful:
            answers = self._claim(doubtful)
            ours = [(a, c.job) for a, c in zip(doubtful, answers, strict=True) if c.job is not None]
            self._admit([replace(a, job=job) for a, job in ours])
            self._drop([a.key for a, c in zip(doubtful, answers, strict=True) if c.job is None])
            given_up = [c for c in answers if c.verdict is Verdict.GIVEN_UP]
            if given_up:
                log.warning("gave up %d jobs that ended their worker each time", len(given_up))
                self._changed([Change(c.id, str(c.state), c.version) for c in given_up])

    def _claim(self, doubtful: Sequence[Arrival]) -> Sequence[Claimed]:
        return self._database.run(claim, [(a.job, a.lost) for a in doubtful], self._worker, self._limits)
