"""Tells the database which jobs are running: those that have run for a while, and those that were lost before.

A short job is never marked: its first write is its last. A marked job has a lease that this thread renews; when the
process dies, the sweeper finds the lease over and the job goes back to its queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
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

MARK_AFTER_S = 0.1
"""A job that has run this long is worth a write of its own."""


class Marker:
    """Wakes when a started job is due to be marked or a lease is due to be renewed."""

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
        self._condition = threading.Condition()
        self._mark_at: float | None = None
        self._beat_at = clock() + lease_s / 4
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
        if len(suspects) == len(fresh):
            return
        with self._condition:
            if self._mark_at is None:
                self._mark_at = self._clock() + MARK_AFTER_S
                self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                now = self._clock()
                due = min(self._beat_at, self._mark_at if self._mark_at is not None else self._beat_at)
                while not self._closed and now < due:
                    self._condition.wait(due - now)
                    now = self._clock()
                    due = min(self._beat_at, self._mark_at if self._mark_at is not None else self._beat_at)
                if self._closed:
                    return
                marking = self._mark_at is not None and now >= self._mark_at
                beating = now >= self._beat_at
                if marking:
                    self._mark_at = None
                if beating:
                    self._beat_at = now + self._lease_s / 4
            if marking:
                self._try(self._mark_due, now)
            if beating:
                self._try(self._beat)

    def _try(self, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """A job runs on whether or not its row says so; engine threads pass through here and must not fail."""
        try:
            step(*args, **kwargs)
        except StoreUnavailable:
            log.warning("database away; running jobs are not marked until it is back")
        except Exception:
            log.exception("running jobs could not be marked")

    def _mark_due(self, now: float) -> None:
        self._mark(self._hand.to_mark(now - MARK_AFTER_S / 2))
        if self._hand.to_mark(now):
            with self._condition:
                self._mark_at = self._mark_at or self._clock() + MARK_AFTER_S

    def _mark(self, due: Sequence[Held]) -> None:
        """Write that these run. A waiting sync call's job gets its row here, so that what kills us is counted."""
        if not due:
            return
        stored = [(held.job.id, held.job.fence) for held in due if held.job.stored]
        unstored = [held.job for held in due if not held.job.stored]
        ours = self._database.run(start, stored, self._worker, self._until(), unstored)
        for held in due:
            held.marked = held.job.id in ours
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
