"""Making a submission safe and sending it: row first, then message, in groups.

*Accept* is the stored path: one transaction for all that has gathered, then one pipelined publish. The caller is told
as soon as the row is committed; inputs too large for one are in the blob store before that. A publish that fails is not
its concern, since the sweeper sends what the broker does not hold. *Send* is the direct path: the message is the job's
only copy while its caller waits. *Keep* turns a direct job into a stored one, when the wait ends first or the message
may be lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import Connection

from tasks.contents import AsyncContents
from tasks.db import AsyncDatabase
from tasks.errors import BrokerUnavailable, JobNotFound, Overloaded, TaskError
from tasks.gather import Gather
from tasks.jobs import Job, State
from tasks.messages import Submission
from tasks.store.accept import Existing, insert, unused
from tasks.store.change import cancel
from tasks.store.read import jobs as read_jobs
from tasks.store.read import submissions

log = logging.getLogger(__name__)

MOST_ROWS = 512
MOST_BYTES = 8 * 2**20


class Publishing(Protocol):
    """The part of the publisher that a submitter needs."""

    async def publish(self, jobs: Sequence[Submission]) -> None:
        """Send a message for each job."""

    async def held(self, ids: Sequence[UUID]) -> set[UUID] | None:
        """Which of these jobs have a message; None if the broker cannot tell."""

    async def forget(self, ids: Sequence[UUID]) -> None:
        """Have workers drop these jobs."""


class Submitter:
    """One for each process and event loop. Close it last: what was committed is still sent then."""

    def __init__(
        self,
        database: AsyncDatabase,
        publisher: Publishing,
        *,
        room: int,
        clock: Callable[[], float],
        contents: AsyncContents,
    ) -> None:
        self._contents = contents
        self._room = room
        self._database = database
        self._publisher = publisher
        self._clock = clock
        self._rows: Gather[Submission, Existing | None] = Gather(
            self._commit, most=MOST_ROWS, most_bytes=MOST_BYTES, size=_bytes, room=room
        )
        self._kept: Gather[Submission, Job | None] = Gather(
            self._keep, most=MOST_ROWS, most_bytes=MOST_BYTES, size=_bytes, room=2**31
        )
        self._messages: Gather[Submission, BrokerUnavailable | None] = Gather(
            self._publish, most=MOST_ROWS, most_bytes=MOST_BYTES, size=_bytes, room=room * 4
        )
        self._dropped: Gather[tuple[UUID, str | None], None] = Gather(
            self._forget, most=MOST_ROWS, most_bytes=MOST_BYTES, size=lambda _: 1, room=room * 4
        )

    async def accept(self, job: Submission) -> Existing | None:
        """Commit the job's row and see to its message. The job that its idempotency key leads to already, if any.

        Raises Overloaded when too many wait, StoreUnavailable when the database is away: then nothing was accepted.
        """
        ready = await self.offloaded(job)
        existing = await self._rows.put(ready)
        if existing is not None and ready.inputs_blob is not None:
            await self._contents.delete([ready.inputs_blob])
        return existing

    async def offloaded(self, job: Submission) -> Submission:
        """The job with its inputs in the blob store if they are too large for a row, as they are before it is accepted.

        Who may offer a job again and again does this once, before. Raises Overloaded or StoreUnavailable.
        """
        if len(job.inputs) > self._contents.contents.most and len(self._rows) >= self._room:
            raise Overloaded
        return await self._contents.offloaded(job)

    async def send(self, job: Submission) -> bool:
        """Publish a job that has no row. False when the broker did not take it. Raises Overloaded."""
        return await self._messages.put(job) is None

    async def keep(self, job: Submission) -> Job:
        """Give a direct job its row and its message, if it has them no longer or not yet. The row as it then is.

        Raises StoreUnavailable when the database is away: then its id must not be told. Raises JobNotFound when the
        job has ended and its retention, too.
        """
        row = await self._kept.put(await self.offloaded(job))
        if row is None:
            raise JobNotFound
        return row

    def drop(self, id_: UUID, caller: str) -> None:
        """Nobody waits for this direct job any more, and nobody knows its id: do not run it if that can be helped."""
        try:
            self._dropped.put((id_, caller)).add_done_callback(_note)
        except Overloaded:
            log.warning("job %s runs for nobody: too many wait to be dropped", id_)

    def forget(self, id_: UUID) -> None:
        """This job was cancelled, and its row says so: do not run it if that can be helped."""
        try:
            self._dropped.put((id_, None)).add_done_callback(_note)
        except Overloaded:
            log.warning("job %s may run although it was cancelled; its result will not be written", id_)

    async def revive(self, ids: Sequence[UUID]) -> None:
        """See to the messages of jobs that were queued again. Raises StoreUnavailable; then the sweeper does it."""
        for job in await self._database.run(submissions, ids):
            self._post(job)

    async def close(self) -> None:
        """Wait until all that was handed over is committed and sent."""
        await self._rows.drain()
        await self._kept.drain()
        await self._messages.drain()
        await self._dropped.drain()

    async def _commit(self, jobs: Sequence[Submission]) -> list[Existing | None]:
        accepted = await self._database.run(insert, jobs)
        existing = accepted.existing
        for job in jobs:
            if job.id not in existing:
                self._post(job)
        return [existing.get(job.id) for job in jobs]

    async def _keep(self, jobs: Sequence[Submission]) -> list[Job | None]:
        stored = [replace(job, stored=True, checked=True) for job in jobs]
        rows, spent = await self._database.run(_insert_and_read, stored)
        if spent:
            await self._contents.delete(spent)
        waiting = [job for job in stored if _first_try(rows.get(job.id), job)]
        if waiting:
            held = await self._held([job.id for job in waiting])
            for job in waiting:
                if job.id not in held:
                    self._post(job)
        return [rows.get(job.id) for job in jobs]

    async def _held(self, ids: Sequence[UUID]) -> set[UUID]:
        """The jobs whose message exists; none if the broker cannot tell, since a second copy does no harm."""
        try:
            return await self._publisher.held(ids) or set()
        except BrokerUnavailable:
            return set()

    def _post(self, job: Submission) -> None:
        """See to the message of a committed job. Whatever happens, the sweeper sends what is not there."""
        try:
            self._messages.put(job).add_done_callback(_note)
        except Overloaded:
            log.warning("too many messages wait for the broker; the sweeper will send job %s", job.id)

    async def _publish(self, jobs: Sequence[Submission]) -> list[BrokerUnavailable | None]:
        sent = self._clock()
        try:
            await self._publisher.publish([replace(job, sent=sent) for job in jobs])
        except BrokerUnavailable as error:
            log.warning("broker away: %d messages not sent; stored jobs wait for the sweeper", len(jobs))
            return [error] * len(jobs)
        return [None] * len(jobs)

    async def _forget(self, dropped: Sequence[tuple[UUID, str | None]]) -> list[None]:
        await self._publisher.forget([id_ for id_, _ in dropped])
        without_row = [(id_, caller) for id_, caller in dropped if caller is not None]
        if without_row:
            await self._database.run(_cancel, without_row)
        return [None] * len(dropped)


def _insert_and_read(connection: Connection, jobs: Sequence[Submission]) -> tuple[Mapping[UUID, Job], Sequence[str]]:
    """The rows, and the blobs of inputs that were there already."""
    insert(connection, jobs)
    return read_jobs(connection, [job.id for job in jobs]), unused(connection, jobs)


def _cancel(connection: Connection, jobs: Sequence[tuple[UUID, str]]) -> None:
    """A direct job that runs long has a row by now."""
    for id_, caller in sorted(jobs):
        with suppress(JobNotFound):
            cancel(connection, id_, caller)


def _first_try(row: Job | None, job: Submission) -> bool:
    """Whether the row waits for this very message; a later attempt waits for its own, at its own time."""
    return row is not None and row.state is State.QUEUED and (row.fence, row.attempt) == (job.fence, job.attempt)


def _bytes(job: Submission) -> int:
    return len(job.inputs) + 1024


def _note(done: asyncio.Future[Any]) -> None:
    """Take an outcome that nobody awaits, so that an unexpected one is logged and not lost."""
    if not done.cancelled() and (error := done.exception()) is not None and not isinstance(error, TaskError):
        log.error("the broker was not told", exc_info=error)
