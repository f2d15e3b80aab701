"""The slow way in: jobs whose row must be read before they run.

A job comes this way when its message was delivered before, when another copy of it may exist, when an earlier child
died with it, or when its inputs or options were too large to travel. All that has gathered is claimed in one
transaction. Inputs that are in the blob store are read next, by the fetcher.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from tasks.child.inbox import Arrival, Inbox
from tasks.db import Database
from tasks.errors import StoreUnavailable
from tasks.notices import Change
from tasks.store.claim import Claimed, Limits, Rest, Verdict, claim, rest

log = logging.getLogger(__name__)


class Claimer(Inbox):
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
        super().__init__("claimer")
        self._database = database
        self._worker = worker
        self._limits = limits
        self._admit = admit
        self._drop = drop
        self._changed = changed

    def run(self) -> None:
        """Claim all that has gathered, again and again."""
        while True:
            with self.condition:
                self.condition.wait_for(lambda: self.waiting or self.closed)
                if self.closed:
                    return
                arrivals, self.waiting = self.waiting, []
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
            found = self._database.run(rest, [a.job.id for a in plain])
            self._admit([_whole(a, found[a.job.id]) for a in plain if a.job.id in found])
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


def _whole(arrival: Arrival, found: Rest) -> Arrival:
    job = replace(arrival.job, inputs=found.inputs, inputs_blob=found.blob, options=found.options)
    return replace(arrival, job=job)
