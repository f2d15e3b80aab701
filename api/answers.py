"""Answering a submission: at once, or with the result when it comes within the wait.

*Direct*: the message goes out first and the row is written once, finished, by the worker. If the wait ends before the
job does, the row is written here, and only then is the id told. *Stored*: the row first. See docs/decisions/0005.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from starlette.responses import Response
from starlette.types import Receive

from api.body import OFF_LOOP_BYTES, ClientGone
from api.door import off_loop
from api.forgetting import once
from api.leaving import Leaving
from api.media import Media, dumps
from api.render import ended_job, job_object, queued_job
from api.results import result_object, rows_of
from api.services import Door, Services
from api.waiting import Nudge, Signal, Waiter, is_over
from catalog.errors import CatalogError
from catalog.terms import Verb
from tasks.errors import IdempotencyConflict, JobNotFound, NotFinished, StoreUnavailable
from tasks.jobs import Job, State
from tasks.messages import Submission, travels
from tasks.notices import Reply
from tasks.ranking import rank
from tasks.rendering import Encoding
from tasks.store import read
from tasks.store.accept import Existing, holder
from tasks.tenant_limits import QuotaExceeded, TooManyJobs

log = logging.getLogger(__name__)

POLL_AFTER_S = "1"
"""Retry-After of a 202: a caller that polls need not come sooner; one that waits uses ?wait=."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a caller wants its answer: how long it waits, and in what form the result comes."""

    wait: float
    media: Media = Media.JSON
    encoding: Encoding = Encoding.FLOAT
    receive: Receive | None = None


@dataclass(frozen=True, slots=True)
class End:
    """A job that has ended, with its stored result."""

    job: Job
    result: bytes | None


def is_direct(services: Services, job: Submission, form: Form) -> bool:
    """Whether a job may go without a row while its caller waits."""
    return (
        form.wait > 0
        and job.idempotency_key is None
        and job.webhook is None
        and travels(job)
        and services.link.up
        and not services.waiting.closing
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a wait came to: the job's end, or its row when the wait ended first. `replayed`: a key led to the job."""

    end: End | None
    row: Job | None = None
    replayed: bool = False


async def answer(services: Services, job: Submission, form: Form) -> Response:
    """Take the job in and reply: 202 with the job, or 200 with its end."""
    found = await outcome(services, job, form)
    headers = {"idempotent-replayed": "true"} if found.replayed else None
    if found.end is not None:
        large = len(found.end.result or b"") > OFF_LOOP_BYTES
        return once(services, found.end.job, await off_loop(large, finished, services, found.end, form, headers))
    return accepted(found.row or queued_job(job), form, headers)


async def outcome(services: Services, job: Submission, form: Form) -> Outcome:
    """Take the job in and wait for its end as long as `form` says.

    A job without an idempotency key whose caller leaves is dropped, for nobody knows its id: ClientGone. Raises
    IdempotencyConflict, Overloaded or StoreUnavailable.
    """
    if is_direct(services, job, form):
        return await _direct(services, job, form)
    if form.wait <= 0:
        existing = await stored(services, job)
        if existing is None:
            return Outcome(None, queued_job(job))
        return await _replay(services, job, existing, form)
    with services.waiting.open(job.id) as waiter:
        existing = await stored(services, replace(job, reply_to=services.instance))
        if existing is None:
            try:
                end = await until_end(services, waiter, job, form)
            except ClientGone:
                if job.idempotency_key is None:
                    services.submitter.drop(job.id, job.caller)
                raise
            return Outcome(end, None if end is not None else await _row(services, job))
    return await _replay(services, job, existing, form)


async def _direct(services: Services, job: Submission, form: Form) -> Outcome:
    copy = direct_copy(services, job)
    with services.waiting.open(job.id, direct=copy) as waiter:
        try:
            await sent(services, waiter, copy)
            end = await until_end(services, waiter, job, form)
        except ClientGone:
            services.submitter.drop(job.id, job.caller)
            raise
        if end is None:
            row = await services.submitter.keep(copy)
            if not row.state.final:
                return Outcome(None, row)
            end = await look(services, job.id, job.caller)
    if end is None:
        raise StoreUnavailable
    return Outcome(end)


def direct_copy(services: Services, job: Submission) -> Submission:
    """The job as it goes out without a row, to be answered to this process."""
    return replace(job, stored=False, reply_to=services.instance)


async def sent(services: Services, waiter: Waiter, copy: Submission) -> None:
    """Send a direct job; it gets its row at once if the broker does not take it. Raises Overloaded, or as limits do."""
    async with _let_in(services, copy):
        if not await services.submitter.send(copy):
            await services.submitter.keep(copy)
            waiter.direct = None
    services.metrics.taken_in(copy, "direct")


async def stored(services: Services, job: Submission) -> Existing | None:
    """Commit a job's row before its message goes out; the job that its key leads to already, if any.

    Raises Overloaded or StoreUnavailable, or as limits do.
    """
    try:
        async with _let_in(services, job):
            existing = await services.submitter.accept(job)
    except (TooManyJobs, QuotaExceeded):
        # Whoever asks again for what is there already takes nothing.
        if (existing := await services.database.run(holder, job)) is None:
            raise
        return existing
    if existing is None:
        services.metrics.taken_in(job, "stored")
    else:
        await services.limiter.release(job.id, job.caller, job.items)
    return existing


@asynccontextmanager
async def _let_in(services: Services, job: Submission) -> AsyncIterator[None]:
    """Hold a job against its tenant's limits, and count it no more if it is not taken in. Raises as the limiter."""
    await services.limiter.admit(job)
    try:
        yield
    except BaseException:
        await services.limiter.release(job.id, job.caller, job.items)
        raise


async def _replay(services: Services, job: Submission, existing: Existing, form: Form) -> Outcome:
    """What became of the job that a key leads to already. The job's own end is told, whatever it is."""
    if existing.body_hash != job.body_hash:
        raise IdempotencyConflict(param="Idempotency-Key")
    with services.waiting.open(existing.id) as waiter:
        end = await look(services, existing.id, job.caller)
        if end is None and form.wait > 0:
            end = await until_end(services, waiter, job, form)
    if end is not None:
        return Outcome(end, replayed=True)
    row = await services.database.run(read.job, existing.id, job.caller)
    if row is None:
        raise JobNotFound
    return Outcome(None, row, replayed=True)


async def until_end(services: Services, waiter: Waiter, job: Submission, form: Form) -> End | None:
    """Wait for the job's end; None when the wait is over first. Raises ClientGone when the caller leaves."""
    until = asyncio.get_running_loop().time() + form.wait
    with Leaving(form.receive, waiter):
        while True:
            signal = await waiter.next(until)
            if is_over(signal):
                over(services, signal)
                return None
            if (end := await heard(services, waiter, job, signal)) is not None:
                return end


def over(services: Services, signal: Signal) -> None:
    """Count a wait that ends with this signal and no result. Raises ClientGone when it was the caller who left."""
    ends = services.metrics.waits
    if signal is Nudge.GONE:
        ends.labels("gone").inc()
        raise ClientGone
    ends.labels("timeout" if signal is Nudge.TIMEOUT else "closing").inc()


async def heard(services: Services, waiter: Waiter, job: Submission, signal: Signal) -> End | None:
    """The job's end, if this signal or else the row tells it."""
    # A repeat waits for the first one's job, of which its own submission says neither id nor times.
    ours = isinstance(signal, Reply) and signal.id == job.id
    end = None
    if isinstance(signal, Reply) and ours and (signal.result is not None or not signal.has_result):
        end = End(ended_job(queued_job(job), signal), signal.result)
    else:
        end = await _try_look(services, waiter.id, job.caller)
    if end is not None:
        services.metrics.waits.labels("done").inc()
    return end


async def look(services: Services, id_: UUID, caller: str) -> End | None:
    """The job's end as its row tells it; None when it has not ended, or has no row. Raises as `read_end` otherwise."""
    try:
        return await read_end(services, id_, caller)
    except (NotFinished, JobNotFound):
        return None


async def read_end(services: Services, id_: UUID, caller: str | None) -> End:
    """An ended job with its result, wherever that is kept. Raises as `read.result`, or BlobMissing."""
    found = await services.database.run(read.result, id_, caller)
    return End(found.job, found.rows if found.blob is None else await services.contents.get(found.blob))


async def _try_look(services: Services, id_: UUID, caller: str) -> End | None:
    try:
        return await look(services, id_, caller)
    except StoreUnavailable:
        log.warning("the row of job %s could not be read; its caller waits on", id_)
        return None


async def _row(services: Services, job: Submission) -> Job:
    """The row of an accepted job; what was committed, when the database is away or the row is gone."""
    try:
        return await services.database.run(read.job, job.id, job.caller) or queued_job(job)
    except StoreUnavailable:
        return queued_job(job)


def accepted(job: Job, form: Form, headers: Mapping[str, str] | None = None) -> Response:
    """202: the job is safe and will run."""
    return Response(
        dumps(job_object(job), form.media),
        status_code=202,
        media_type=form.media.value,
        headers={"location": f"/v1/jobs/{job.id}", "retry-after": POLL_AFTER_S, **(headers or {})},
    )


def finished(services: Services, end: End, form: Form, headers: Mapping[str, str] | None = None) -> Response:
    """200: the job has ended, well or badly, and this is its result."""
    body = job_object(end.job)
    body["result"] = result_of(services, end, form.media, form.encoding)
    return Response(
        dumps(body, form.media),
        media_type=form.media.value,
        headers={"location": f"/v1/jobs/{end.job.id}", **(headers or {})},
    )


def result_of(services: Services, end: End, media: Media, encoding: Encoding) -> dict[str, object] | None:
    """The result object of an ended job; None when it ended without any."""
    if end.result is None:
        return None
    job = end.job
    rows = rows_of(end.result, media, encoding)
    return result_object(str(job.id), job.state.value, job.model, job.usage, rows, scores_of(services, job, rows))


def scores_of(services: Door, job: Job, rows: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The ranking of a score, which gives the rows their ranks, too; None for another verb."""
    return rank(rows, _top_n(services, job)) if job.verb is Verb.SCORE else None


def error_of(job: Job) -> Mapping[str, Any]:
    """Why an ended job has no result: its own error, or what its state says."""
    return job.error or _NO_RESULT[job.state]


_NO_RESULT: Mapping[State, Mapping[str, Any]] = {
    State.CANCELLED: {"code": "cancelled", "message": "The job was cancelled; it has no result."},
    State.EXPIRED: {"code": "deadline_passed", "message": "The job was not done before its deadline."},
    State.FAILED: {"code": "failed", "message": "The job failed."},
}


def _top_n(services: Door, job: Job) -> int | None:
    """How many of a ranking its caller asked for, or else the model's profile; None is all."""
    asked: int | None = job.options.get("top_n")
    if "top_n" in job.options:
        return asked
    try:
        found: int | None = services.catalog.find(job.model).run.get("top_n")
    except CatalogError:
        return None
    return found
