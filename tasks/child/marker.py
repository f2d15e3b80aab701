"""Tells the database which jobs are running: those that have run for a while, and those that were lost before.

A short job is never marked: its first write is its last. A marked job has a lease that this thread renews; when the
process dies, the sweeper finds the lease over and the job goes back to its queue. While it runs, those who follow it
are told how many of its items are done.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import ParamSpec
from uuid import UUID

from tasks import notices
from tasks.child.hand import Hand, Held
from tasks.child.wakes import Wakes
from tasks.db import Database
from tasks.errors import StoreUnavailable
from tasks.jobs import State
from tasks.store.claim import beat, start

log = logging.getLogger(__name__)

P = ParamSpec("P")

MARK_AFTER_S = 0.5
"""A job that has run this long is worth a write of its own. A full batch on a CPU takes a fifth to half of it."""

TELL_EVERY_S = 0.25
"""Progress is told this often at most."""


class Step(Enum):
    """What the thread wakes for."""

    MARK = auto()
    TELL = auto()
    BEAT = auto()


class Marker:
    """A thread that wakes when one of its steps is due."""

    def __init__(
        self,
        hand: Hand,
        database: Database,
        wakes: Wakes,
        *,
        worker: str,
        lease_s: float,
        taken: Callable[[Sequence[str]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hand = hand
        self._database = database
        self._wakes = wakes
        self._worker = worker
        self._lease_s = lease_s
        self._taken = taken
        self._clock = clock
        self._condition = threading.Condition(threading.RLock())
        self._due = {Step.BEAT: clock() + lease_s / 4}
        self._progressed: dict[UUID, Held] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="marker", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; leases are left to run out or were ended by their commits."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def began(self, fresh: Sequence[Held]) -> None:
        """These jobs have just begun: mark them if they are still running in MARK_AFTER_S, suspects at once."""
        suspects = [held for held in fresh if held.suspect]
        self._try(self._mark, suspects)
        if len(suspects) < len(fresh):
            self._wake_in(Step.MARK, MARK_AFTER_S)

    def progressed(self, held: Sequence[Held]) -> None:
        """More items of these running jobs are done: tell those who follow them, soon."""
        with self._condition:
            self._progressed.update((one.job.id, one) for one in held)
            self._wake_in(Step.TELL, TELL_EVERY_S)

    def _wake_in(self, step: Step, seconds: float) -> None:
        with self._condition:
            if step not in self._due:
                self._due[step] = self._clock() + seconds
                self._condition.notify()

    def _run(self) -> None:
        steps = {Step.MARK: self._mark_due, Step.TELL: self._tell, Step.BEAT: self._beat}
        while True:
            with self._condition:
                now = self._clock()
                while not self._closed and now < min(self._due.values()):
                    self._condition.wait(min(self._due.values()) - now)
                    now = self._clock()
                if self._closed:
                    return
                due = [step for step, at in self._due.items() if at <= now]
                for step in due:
                    del self._due[step]
                if Step.BEAT in due:
                    self._due[Step.BEAT] = now + self._lease_s / 4
            for step in due:
                self._try(steps[step])

    def _try(self, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """A job runs on whether or not its row says so; engine threads pass through here and must not fail."""
        try:
            step(*args, **kwargs)
        except StoreUnavailable:
            log.warning("database away; running jobs are not marked until it is back")
        except Exception:
            log.exception("running jobs could not be marked")

    def _mark_due(self) -> None:
        try:
            self._mark(self._hand.to_mark(self._clock() - MARK_AFTER_S / 2))
        finally:
            # Those that began meanwhile, and those that the database could not hear of.
            if self._hand.to_mark(self._clock()):
                self._wake_in(Step.MARK, MARK_AFTER_S)

    def _tell(self) -> None:
        with self._condition:
            held, self._progressed = list(self._progressed.values()), {}
        running = State.RUNNING.value
        self._wakes.changed(
            [notices.Change(one.job.id, running, one.version, one.done) for one in held if one.marked and not one.ended]
        )

    def _mark(self, due: Sequence[Held]) -> None:
        """Write that these run. A waiting sync call's job gets its row here, so that what kills us is counted."""
        if not due:
            return
        stored = [(held.job.id, held.job.fence) for held in due if held.job.stored]
        unstored = [held.job for held in due if not held.job.stored]
        ours = self._database.run(start, stored, self._worker, self._until(), unstored)
        for held in due:
            held.version = ours.get(held.job.id, 0)
        self._lost(due, set(ours))
        changes = [notices.Change(id_, State.RUNNING.value, version) for id_, version in ours.items()]
        self._wakes.changed(changes)

    def _beat(self) -> None:
        marked = self._hand.marked()
        if marked:
            held = [(one.job.id, one.job.fence) for one in marked]
            self._lost(marked, self._database.run(beat, self._worker, held, self._until()))

    def _until(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._lease_s)

    def _lost(self, asked: Sequence[Held], ours: set[UUID]) -> None:
        """Give up jobs whose row says that they were cancelled or taken."""
        gone = [str(held.job.id) for held in asked if held.job.id not in ours and not held.ended]
        if gone:
            self._taken(gone)
