"""Sends what is due: as many at once as may be, and of each target so few that a dead one keeps no other waiting.

Postgres says what is due. A delivery that is taken is under a lease: one whose sender died is taken again after it,
under the same id. Any number of senders share the work.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from tasks.db import AsyncDatabase
from tasks.errors import TaskError, UrlRefused, UrlUnreachable
from tasks.gather import Gather
from tasks.store import deliveries
from tasks.webhooks import events, schedule, signing
from tasks.webhooks.connect import Reply
from tasks.webhooks.endpoint import Due
from tasks.webhooks.schedule import Next, Tried

log = logging.getLogger(__name__)

EACH, EACH_FAILING = 8, 1
"""Attempts at once to one target, and to one whose last attempt failed."""

MOST_FAILING = 10_000
"""Targets of which it is remembered that they fail."""

LEASE_SPARE_S = 30.0
"""How much longer than an attempt its lease is: time for the database to be away."""

LOOK_S = 5.0
"""How often it is looked for what is due, if nobody says that there is something."""

MOST_REPLY_BYTES = 16 * 1024
"""What is read of a reply; its status alone counts."""

OUR_FAULT = "an error of this service; its log says more"

MOST_RECORDS = 256
"""Attempts that are noted in one transaction."""

_PAUSE_S = 1.0


class Opening(Protocol):
    """Who makes the requests: `tasks.webhooks.connect.Opener`."""

    async def post(self, url: str, body: bytes, headers: Any, *, timeout_s: float, most_bytes: int) -> Reply:
        """Send the body. Raises UrlRefused or UrlUnreachable."""


Results = Callable[[UUID, str], Any]
"""Awaitable rows of a job's result as JSON takes them, if they are small enough to go along; else None."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that a sender goes by. `base` goes before the paths in events."""

    timeout_s: float
    most: int
    base: str = ""


@dataclass(slots=True)
class Sender:
    """One for each event loop. `heard` counts what came of attempts."""

    database: AsyncDatabase
    opener: Opening
    results: Results
    rules: Rules
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    jitter: Callable[[], float] = random.random
    heard: Callable[[str], object] = lambda _: None
    _flying: set[asyncio.Task[None]] = field(default_factory=set)
    _targets: Counter[str] = field(default_factory=Counter)
    _callers: Counter[str] = field(default_factory=Counter)
    _failing: dict[str, None] = field(default_factory=dict)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _closing: bool = False
    _records: Gather[tuple[Due, Tried, Next], None] = field(init=False)

    def __post_init__(self) -> None:
        # What has come of many attempts is one transaction: else a sender would wait for its disk most of the time.
        self._records = Gather(
            self._write, most=MOST_RECORDS, most_bytes=MOST_RECORDS, size=lambda _: 1, room=2 * self.rules.most
        )

    def wake(self) -> None:
        """Something may be due."""
        self._woken.set()

    def close(self) -> None:
        """Take nothing more; `run` ends once what is under way has."""
        self._closing = True
        self._woken.set()

    async def run(self) -> None:
        """Send until closed."""
        while not self._closing:
            self._woken.clear()
            try:
                now = self.clock()
                pause_s = LOOK_S if await self._take(now) else await self._until_next(now)
            except TaskError as error:
                log.warning("no webhooks can be sent just now: %s", error.message)
                pause_s = _PAUSE_S
            except Exception:
                log.exception("unexpected error of the sender")
                pause_s = _PAUSE_S
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()
        if self._flying:
            await asyncio.wait(self._flying, timeout=self.rules.timeout_s)
        for task in self._flying:
            task.cancel()

    async def _take(self, now: datetime) -> bool:
        """Begin as many attempts as there is room for; whether there were any."""
        free = self.rules.most - len(self._flying)
        if free <= 0:
            return True
        lease = timedelta(seconds=self.rules.timeout_s + LEASE_SPARE_S)
        half = max(1, self.rules.most // 2)
        taken = await self.database.run(
            deliveries.claim,
            now,
            lease,
            most=free,
            # Half of all places are kept for targets that have nothing under way and are not known to fail, or those
            # that hang would take them all. What one caller has counts as no more than half of that, or it would have
            # nobody else's failing ones tried again.
            more=max(0, half - sum(min(count, max(1, half // 2)) for count in self._callers.values())),
            each=EACH,
            room=self._room(),
            # A quarter is kept for other callers, or one whose receivers all hang would have the others wait for them.
            share=self.rules.most - self.rules.most // 4,
            share_of_more=half,
            held=self._callers,
        )
        for due in taken:
            self._targets[due.target] += 1
            self._callers[due.caller] += 1
            task = asyncio.create_task(self._attempt(due), name=f"attempt of {due.id}")
            self._flying.add(task)
            task.add_done_callback(self._flying.discard)
        if taken:
            # There may be more that is due than one look takes.
            self._woken.set()
        return bool(taken)

    def _room(self) -> dict[str, int]:
        """How many more attempts may be made to those targets to which it is not the usual number."""
        return {
            target: max(0, (EACH_FAILING if target in self._failing else EACH) - self._targets[target])
            for target in {*self._targets, *self._failing}
        }

    async def _until_next(self, now: datetime) -> float:
        """Seconds until something more is due, or until it is looked again. What has no room waits for a wake."""
        due = await self.database.run(deliveries.next_due, now)
        if due is None:
            return LOOK_S
        return min(max((due - self.clock()).total_seconds(), 0.0), LOOK_S)

    async def _attempt(self, due: Due) -> None:
        try:
            tried = await self._tried(due)
            self._note(due.target, tried)
            await self._record(due, tried)
        except TaskError as error:
            log.warning("what came of delivery %s could not be noted; it is sent again: %s", due.id, error.message)
        except Exception:
            log.exception("unexpected error in delivery %s", due.id)
        finally:
            for counter, name in ((self._targets, due.target), (self._callers, due.caller)):
                counter[name] -= 1
                if not counter[name]:
                    del counter[name]
            self._woken.set()

    async def _tried(self, due: Due) -> Tried:
        """What comes of an attempt. Raises TaskError when the database cannot be had for it."""
        began = time.perf_counter()
        try:
            reply = await self._sent(due)
        except (UrlRefused, UrlUnreachable) as failed:
            reply, error = None, failed.message
        except TaskError:
            raise
        except Exception:
            # It counts as an attempt: what can never be sent must not be tried for ever.
            log.exception("unexpected error in delivery %s", due.id)
            reply, error = None, OUR_FAULT
        spent_ms = round((time.perf_counter() - began) * 1000)
        if reply is None:
            return Tried(self.clock(), spent_ms, error=error)
        return Tried(
            self.clock(), spent_ms, reply.status, schedule.reason(reply.status), reply.headers.get("retry-after")
        )

    async def _sent(self, due: Due) -> Reply:
        result = await self.results(due.object, due.caller) if due.inline and due.type in events.OF_JOBS else None
        body = events.payload(due.type, due.created_at, due.data, base=self.rules.base, result=result)
        headers = signing.headers(due.id, self.clock(), body, due.keys)
        return await self.opener.post(
            due.url, body, headers, timeout_s=self.rules.timeout_s, most_bytes=MOST_REPLY_BYTES
        )

    def _note(self, target: str, tried: Tried) -> None:
        self.heard("delivered" if tried.succeeded else "refused" if tried.status else "unreachable")
        if tried.succeeded:
            self._failing.pop(target, None)
            return
        self._failing[target] = None
        if len(self._failing) > MOST_FAILING:
            del self._failing[next(iter(self._failing))]

    async def _record(self, due: Due, tried: Tried) -> None:
        then = schedule.after(tried, due.tries, self.jitter())
        if then.at is not None:
            log.info("delivery %s: attempt %d failed; the next is at %s", due.id, due.attempts, then.at.isoformat())

        await self._records.put((due, tried, then))

    async def _write(self, made: Sequence[tuple[Due, Tried, Next]]) -> Sequence[None]:
        await self.database.run(deliveries.record, made)
        return [None] * len(made)
