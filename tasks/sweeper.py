"""What must happen even if no worker and no message makes it happen: see `Sweeper.sweep`.

One sweep at a time in the whole system, every few seconds, from the service's own Celery worker. It may die anywhere:
all it does is guarded by the rows and safe to do twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol, TypeVar
from uuid import UUID

import redis
from sqlalchemy import Connection

from tasks import keys, notices
from tasks.db import Database
from tasks.dispatch import Publisher
from tasks.errors import BrokerUnavailable
from tasks.jobs import State
from tasks.messages import Submission
from tasks.open_jobs import heal
from tasks.settings import Settings
from tasks.store import read, spent
from tasks.store import sweep as store

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE = 500
"""Rows in one statement."""

MOST_PAGES = 40
"""Pages of one kind in one sweep; the rest is for the next one, so that no kind keeps the others waiting."""

LOOK_AGAIN = timedelta(seconds=30)
"""How soon to look again whether a job that was sent again has a message."""

BLIND_PATIENCE = timedelta(minutes=2)
"""With a broker that cannot tell what it holds, no job younger than this is taken for lost."""

_LOCK = 0x7377656570  # "sweep"
_FIRST = UUID(int=0)
_CURSOR = "unseen"


class Publishing(Protocol):
    """The part of the publisher that the sweeper needs."""

    def publish_now(self, jobs: Sequence[Submission]) -> None:
        """Send the messages of these jobs. Raises BrokerUnavailable."""

    def held_now(self, ids: Sequence[UUID]) -> set[UUID] | None:
        """Which of these jobs have a message; None when the broker cannot tell. Raises BrokerUnavailable."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that a sweep goes by."""

    lost_after: timedelta
    max_attempts: int
    job_lease: timedelta = timedelta()
    """how long workers may take to be heard again after the database was away"""
    unstored: timedelta = timedelta(minutes=10)
    """how long the results of jobs that are not kept wait to be fetched"""


@dataclass(slots=True)
class Swept:
    """What one sweep did, in jobs. `ran` is false when another process was at it."""

    ran: bool = True
    expired: int = 0
    """past their deadline, now ended"""
    requeued: int = 0
    """lost while running, now queued"""
    given_up: int = 0
    """lost while running for the last time, now failed"""
    looked: int = 0
    """queued, and asked of the broker"""
    sent: int = 0
    """queued without a message, so sent again"""
    deleted: int = 0
    """past their retention"""
    emptied: int = 0
    """not kept, and nobody fetched their result"""
    uncounted: int = 0
    """ended, and still counted as open of their tenants"""
    broker_away: bool = False


def run(settings: Settings) -> Swept:
    """One sweep with connections of its own, logged if it did anything."""
    database = Database(settings.database_url, 2, name="roost sweeper")
    wakes = redis.Redis.from_url(settings.redis_url, socket_timeout=2, socket_connect_timeout=2)
    publisher = Publisher(settings)
    rules = Rules(
        timedelta(seconds=settings.lost_after_s),
        settings.max_attempts,
        timedelta(seconds=settings.job_lease_s),
        timedelta(seconds=settings.unstored_s),
    )
    try:
        swept = Sweeper(database, publisher, partial(_wake, wakes), rules).sweep()
        with suppress(redis.RedisError, BrokerUnavailable):
            swept.uncounted = heal(wakes, database, publisher.held_now)
    finally:
        publisher.close()
        wakes.close()
        database.close()
    done = {name: value for name, value in asdict(swept).items() if value and name != "ran"}
    if done:
        log.info("swept: %s", ", ".join(f"{name} {value}" for name, value in done.items()))
    return swept


@dataclass(frozen=True, slots=True)
class Sweeper:
    """What a sweep needs. `wake` gets the jobs whose state changed, after their commit."""

    database: Database
    publisher: Publishing
    wake: Callable[[Sequence[notices.Change]], None]
    rules: Rules
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    page: int = PAGE

    def sweep(self) -> Swept:
        """End what is late, take back what dead workers held, send what has no message, empty and delete what is over.

        Returns at once when another process sweeps.
        """
        with self.database.exclusive(_LOCK) as alone:
            swept = Swept(ran=alone)
            if alone:
                self._end_late(swept)
                self._take_back(swept)
                try:
                    self._send_due(swept)
                    self._send_unseen(swept)
                except BrokerUnavailable:
                    swept.broker_away = True
                self._empty(swept)
                self._delete_old(swept)
            return swept

    def _end_late(self, swept: Swept) -> None:
        for moved in self._pages(store.expire):
            swept.expired += len(moved)
            self.wake(_changes(moved))

    def _take_back(self, swept: Swept) -> None:
        rules = self.rules
        for moved in self._pages(partial(store.reclaim, max_attempts=rules.max_attempts, silence=rules.job_lease)):
            swept.given_up += sum(job.state is State.FAILED for job in moved)
            swept.requeued += sum(job.state is State.QUEUED for job in moved)
            self.wake(_changes(moved))

    def _send_due(self, swept: Swept) -> None:
        for waiting in self._pages(store.due):
            self._settle(waiting, swept, due=True)

    def _send_unseen(self, swept: Swept) -> None:
        """Go on where the last sweep stopped; at the end, begin again."""
        began = after = UUID(self.database.run(store.recall, _CURSOR) or str(_FIRST))
        for _ in range(MOST_PAGES):
            waiting = self.database.run(store.unseen, self.clock() - self.rules.lost_after, after, self.page)
            self._settle(waiting, swept, due=False)
            after = waiting[-1].id if len(waiting) == self.page else _FIRST
            if after == _FIRST:
                break
        if after != began:
            self.database.run(store.remember, _CURSOR, str(after))

    def _empty(self, swept: Swept) -> None:
        for _ in range(MOST_PAGES):
            emptied = self.database.run(spent.forget_late, self.clock() - self.rules.unstored, self.page)
            swept.emptied += emptied
            if emptied < self.page:
                break

    def _delete_old(self, swept: Swept) -> None:
        for _ in range(MOST_PAGES):
            deleted = self.database.run(store.delete, self.clock(), self.page)
            swept.deleted += deleted
            if deleted < self.page:
                break

    def _pages(self, fetch: Callable[[Connection, datetime, int], list[T]]) -> Iterator[list[T]]:
        for _ in range(MOST_PAGES):
            found = self.database.run(fetch, self.clock(), self.page)
            if found:
                yield found
            if len(found) < self.page:
                break

    def _settle(self, waiting: Sequence[store.Waiting], swept: Swept, *, due: bool) -> None:
        """Send those that have no message, and note when to look at them again."""
        if not waiting:
            return
        swept.looked += len(waiting)
        held = self.publisher.held_now([job.id for job in waiting])
        patience = BLIND_PATIENCE
        if held is None:
            patience = max(patience, 3 * timedelta(seconds=self.database.run(store.queue_delay)))
        plan = settle(waiting, held, self.clock(), due=due, patience=patience)
        if plan.send and (jobs := self.database.run(read.submissions, plan.send)):
            self.publisher.publish_now(jobs)
            swept.sent += len(jobs)
        if plan.look:
            self.database.run(store.looked, plan.look)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which jobs to send again, and when to look next at them and at those that need no sending now."""

    send: list[UUID]
    look: dict[UUID, datetime]


def settle(
    waiting: Sequence[store.Waiting], held: Collection[UUID] | None, now: datetime, *, due: bool, patience: timedelta
) -> Plan:
    """What to do about queued jobs, of which `held` have a message; None when the broker cannot tell.

    A blind broker's job is lost once it has waited for `patience`, and then each time its wait has doubled: a second
    message costs a look at the row, and a long queue must not fill up with them. A job that is `due` is looked at again
    whatever comes of it; another one only once it was sent.
    """
    if held is None:
        send = [job.id for job in waiting if due or now - job.queued_at >= patience]
        waited = {job.id: now - job.queued_at for job in waiting}
        return Plan(send, {id_: now + max(patience, waited[id_]) for id_ in send})
    send = [job.id for job in waiting if job.id not in held]
    return Plan(send, dict.fromkeys([job.id for job in waiting] if due else send, now + LOOK_AGAIN))


def _changes(moved: Sequence[store.Moved]) -> list[notices.Change]:
    return [notices.Change(job.id, job.state.value, job.version) for job in moved]


def _wake(wakes: redis.Redis, changes: Sequence[notices.Change]) -> None:
    try:
        wakes.publish(keys.CHANGES, notices.pack_changes(changes))
        wakes.publish(keys.DELIVERIES, b"")
    except redis.RedisError as error:  # a hint only: waiters read the row when the link is back
        log.warning("waiters of %d jobs could not be woken: %s", len(changes), type(error).__name__)
