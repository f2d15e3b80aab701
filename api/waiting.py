"""Who waits for which job in this process, and what wakes them.

A wake comes from the pub/sub link: a reply with the whole end of the job, or a change that says to look at its row. A
lost link wakes nobody, so after each reconnect the rows of all waiting jobs are read once, and while the wait is long
every two seconds besides. No database connection is held while waiting.

A direct job has no row while its caller waits (see docs/decisions/0005). When the link is lost its message may be lost
too: then it gets its row at once, and its caller goes on waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any
from uuid import UUID

from tasks.db import AsyncDatabase
from tasks.errors import TaskError
from tasks.jobs import Job, State
from tasks.messages import Submission
from tasks.notices import Change, Piece, Reply
from tasks.store import read

log = logging.getLogger(__name__)

REREAD_S = 2.0

MOST_PIECES = 1024
"""Pieces of texts that wait for one slow caller."""


class Nudge(Enum):
    """What a waiter may hear besides a reply or a change."""

    LOOK = auto()
    """Something may have been missed: look at the row."""
    TIMEOUT = auto()
    """The wait is over."""
    GONE = auto()
    """The caller has left."""
    CLOSING = auto()
    """This process is about to end."""
    SAID = auto()
    """There is more of a text: take it from `Waiter.take`."""


Signal = Reply | Change | Nudge


def is_over(signal: Signal) -> bool:
    """Whether the wait ends with this signal, whatever has become of the job."""
    return signal in (Nudge.TIMEOUT, Nudge.GONE, Nudge.CLOSING)


def _weight(signal: Signal | None) -> int:
    """How much a signal says, compared with others that may come at the same time."""
    if isinstance(signal, Reply):
        return 2
    return int(signal is Nudge.GONE or signal is Nudge.CLOSING)


class Waiter:
    """One caller's interest in one job. `direct` is the job's submission for as long as it has no row.

    One that `follows` hears of texts as they grow, besides.
    """

    __slots__ = ("_future", "_pending", "_said", "direct", "ends_only", "follows", "id", "seen", "since")

    def __init__(
        self, id_: UUID, *, direct: Submission | None, ends_only: bool, since: float, follows: bool = False
    ) -> None:
        self.id = id_
        self.direct = direct
        self.ends_only = ends_only
        self.seen = 0
        self.since = since
        self.follows = follows
        self._said: deque[Piece] = deque(maxlen=MOST_PIECES)
        self._pending: Signal | None = None
        self._future: asyncio.Future[None] | None = None

    def notify(self, signal: Signal) -> None:
        """Wake the caller. What it has not heard yet is replaced only by something that says as much.

        A reply says all. That the wait must end, said once, would not be said again; a time-out would.
        """
        if _weight(signal) >= _weight(self._pending):
            self._pending = signal
        self._wake()

    def add(self, piece: Piece) -> None:
        """More of a text. Of too many that are not taken the oldest go, and are made good later."""
        self._said.append(piece)
        self._wake()

    def take(self) -> list[Piece]:
        """What has been said since the last call."""
        said = list(self._said)
        self._said.clear()
        return said

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def next(self, until: float) -> Signal:
        """The next signal, at latest TIMEOUT at `until` on the loop's clock; what was said before anything else."""
        while self._pending is None and not self._said:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = loop.call_at(until, self.notify, Nudge.TIMEOUT)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        if self._said or self._pending is None:
            return Nudge.SAID
        signal, self._pending = self._pending, None
        return signal


class Waiting:
    """All waiters of this process. `keep` gives a direct job its row (`Submitter.keep`)."""

    def __init__(self, database: AsyncDatabase, keep: Callable[[Submission], Coroutine[Any, Any, Job]]) -> None:
        self._database = database
        self._keep = keep
        self._waiters: dict[UUID, list[Waiter]] = {}
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = False

    def __len__(self) -> int:
        return sum(map(len, self._waiters.values()))

    @property
    def closing(self) -> bool:
        """Whether this process takes no more waits."""
        return self._closing

    @contextmanager
    def open(
        self, id_: UUID, *, direct: Submission | None = None, ends_only: bool = True, follows: bool = False
    ) -> Iterator[Waiter]:
        """A waiter that hears of the job inside the block. Open it before you publish the job or read its row."""
        loop = asyncio.get_running_loop()
        waiter = Waiter(id_, direct=direct, ends_only=ends_only, since=loop.time(), follows=follows)
        self._waiters.setdefault(id_, []).append(waiter)
        if self._closing:
            waiter.notify(Nudge.CLOSING)
        elif self._timer is None:
            self._timer = loop.call_later(REREAD_S, self._tick)
        try:
            yield waiter
        finally:
            mine = self._waiters[id_]
            mine.remove(waiter)
            if not mine:
                del self._waiters[id_]

    def on_replies(self, replies: Sequence[Reply]) -> None:
        """Jobs that callers of this process wait for have ended."""
        for reply in replies:
            for waiter in self._waiters.get(reply.id, ()):
                if waiter.ends_only:
                    waiter.notify(reply)

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Some jobs have changed, anywhere."""
        if not self._waiters:
            return
        for change in changes:
            for waiter in self._waiters.get(change.id, ()):
                if not waiter.ends_only or State(change.state).final:
                    waiter.notify(change)

    def on_pieces(self, pieces: Sequence[Piece]) -> None:
        """Some texts have grown, anywhere."""
        if not self._waiters:
            return
        for piece in pieces:
            for waiter in self._waiters.get(piece.id, ()):
                if waiter.follows:
                    waiter.add(piece)

    def on_up(self) -> None:
        """The link is back: what happened meanwhile was not heard."""
        self._spawn(self._reread(list(self._all())))

    def on_down(self) -> None:
        """The link is lost, and with it perhaps the broker: give every direct job its row now."""
        for waiter in list(self._all()):
            if waiter.direct is not None:
                self._spawn(self._store(waiter, waiter.direct))

    def close(self) -> None:
        """Wake every caller, so that each can be told where its job stands. Further waits end at once."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waiter in list(self._all()):
            waiter.notify(Nudge.CLOSING)

    async def settle(self) -> None:
        """Return when what was begun here has ended."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _all(self) -> Iterable[Waiter]:
        return (waiter for waiters in self._waiters.values() for waiter in waiters)

    def _tick(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if not self._waiters or self._closing:
            return
        self._timer = loop.call_later(REREAD_S, self._tick)
        long = [waiter for waiter in self._all() if loop.time() - waiter.since >= REREAD_S]
        if long and not self._reading:
            self._spawn(self._look_again(long))

    async def _look_again(self, waiters: Sequence[Waiter]) -> None:
        """The slow look, of which there is never more than one: a database that is away must not collect them."""
        self._reading = True
        try:
            await self._reread(waiters)
        finally:
            self._reading = False

    async def _reread(self, waiters: Sequence[Waiter]) -> None:
        if not waiters:
            return
        try:
            rows = await self._database.run(read.jobs, list({waiter.id for waiter in waiters}))
        except TaskError as error:
            log.warning("rows of %d waiting jobs could not be read: %s", len(waiters), error.code)
            return
        for waiter in waiters:
            row = rows.get(waiter.id)
            if row is not None and (row.state.final or (not waiter.ends_only and row.version > waiter.seen)):
                waiter.notify(Nudge.LOOK)

    async def _store(self, waiter: Waiter, job: Submission) -> None:
        try:
            await self._keep(job)
        except TaskError as error:
            log.warning("job %s has no row yet: %s", job.id, error.code)
        else:
            waiter.direct = None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
