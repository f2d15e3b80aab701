"""Running the job of a compatible route: as in the native API, then waited for, and given back as plain rows.

A call is a job like any other: priced, queued, batched with all others, kept with its result, listed and cancelled by
its id, which the header `X-Roost-Job-Id` tells. When the caller leaves, the work is dropped, unless an Idempotency-Key
names it. When the wait ends first, the job is kept, and the same request made again waits for the same job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from api.answers import (
    End,
    Form,
    Outcome,
    direct_copy,
    error_of,
    heard,
    is_direct,
    look,
    outcome,
    over,
    scores_of,
    sent,
    stored,
    until_end,
)
from api.body import OFF_LOOP_BYTES, ClientGone, read_body
from api.compat.endpoints import Asked, Ended, Endpoint
from api.compat.failures import JobFailed, StillRunning, Stopping, first_fault, renamed
from api.door import admit, key_of, off_loop
from api.forgetting import forget, once
from api.identity import tenant
from api.leaving import Leaving
from api.media import Media, dumps, dumps_in_pieces
from api.render import moment
from api.services import Door, Services, services
from api.texts import Delta, Texts
from api.unanswered import mark_of
from api.waiting import Nudge, Waiter, is_over
from catalog.errors import RoostError
from tasks.errors import InvalidRequest
from tasks.jobs import Job, State
from tasks.messages import Submission
from tasks.results import unpack_rows
from tasks.store import read

HOLD_S = 140.0
"""The longest wait: clients of the peer give up after 150 s."""

LONGEST_STREAM_S = 3600.0


async def run(request: Request, asked: Asked, *, size: int = 0) -> Ended:
    """Run a job and wait for its end, at most HOLD_S. `size` is how many bytes the body came in.

    Errors name the caller's own fields. Raises JobFailed with the error of a job that did not succeed, StillRunning,
    ClientGone, or what the door refuses with.
    """
    it = services(request)
    try:
        key = key_of(request.headers)
        job = await admit(it, asked.raw, caller=tenant(request), large=size > OFF_LOOP_BYTES, key=key)
        found = await _outcome(it, job, Form(HOLD_S, receive=request.receive), request)
        if found.end is None:
            raise StillRunning(request.state.job_id)
        return await off_loop(len(found.end.result or b"") > OFF_LOOP_BYTES, ended, it, found.end)
    except RoostError as error:
        raise renamed(error, asked.names) from None


async def admitted(it: Door, asked: Asked, *, caller: str, large: bool = False, key: str | None = None) -> Submission:
    """`admit`, with errors that name the caller's own fields."""
    try:
        return await admit(it, asked.raw, caller=caller, large=large, key=key)
    except RoostError as error:
        raise renamed(error, asked.names) from None


@dataclass(frozen=True, slots=True)
class Call:
    """A request to an endpoint: the body as it was sent, how many bytes it came in, and the job that it asks for."""

    body: dict[str, Any]
    size: int
    asked: Asked


async def read_object(request: Request) -> tuple[dict[str, Any], int]:
    """A body that is an object, and how many bytes it came in. Raises as `read_body` does, or InvalidRequest."""
    body = await read_body(request, services(request).settings.max_body_bytes)
    if not isinstance(body.value, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return body.value, body.size


async def taken(request: Request, endpoint: Endpoint) -> Call:
    """Read a body and what it asks for. Raises as `read_object` and the endpoint do."""
    body, size = await read_object(request)
    return Call(body, size, await off_loop(size > OFF_LOOP_BYTES, endpoint.to_job, body))


async def answered(request: Request, endpoint: Endpoint, call: Call | None = None) -> Response:
    """Run the job of a call, read now if it is not given, and answer as the endpoint does. Raises as `run` does."""
    call = call or await taken(request, endpoint)
    found = await run(request, call.asked, size=call.size)
    reply = await replied(found, lambda: endpoint.to_reply(found, call.body), size=call.size)
    return once(services(request), found.job, reply)


async def replied(found: Ended, shape: Callable[[], object], media: Media = Media.JSON, *, size: int = 0) -> Response:
    """What `shape` makes of a job's end, as a reply; in a thread where that is large, or the body that it reads again.

    `size` is how many bytes that body came in.
    """
    large = found.size > OFF_LOOP_BYTES
    write = dumps_in_pieces if large else dumps
    body = await off_loop(large or size > OFF_LOOP_BYTES, lambda: write(shape(), media))
    return Response(body, media_type=media.value)


async def _outcome(it: Services, job: Submission, form: Form, request: Request) -> Outcome:
    earlier = await _earlier(it, job)
    if earlier is None:
        found = await outcome(it, job, form)
        request.state.job_id = str(_job_of(found, job.id))
    else:
        request.state.job_id = str(earlier.id)
        found = await _resumed(it, earlier, form)
    if found.end is None and job.idempotency_key is None:
        it.unanswered.put(await _mark(job), earlier or job, it.clock())
    return found


async def _earlier(it: Services, job: Submission) -> Submission | None:
    """The job that the same call began before, if there is still something to wait for or to be had of it."""
    if job.idempotency_key is not None or not it.unanswered:
        return None
    earlier = it.unanswered.take(await _mark(job), it.clock())
    row = None if earlier is None else await it.database.run(read.job, earlier.id, earlier.caller)
    if row is None or (row.state.final and row.state is not State.SUCCEEDED):
        return None
    gone = row.expires_at is not None and row.expires_at <= moment(it.clock())
    return None if gone else earlier


async def _mark(job: Submission) -> bytes:
    return await off_loop(len(job.inputs) > OFF_LOOP_BYTES, mark_of, job)


async def _resumed(it: Services, earlier: Submission, form: Form) -> Outcome:
    with it.waiting.open(earlier.id) as waiter:
        try:
            return Outcome(await look(it, earlier.id, earlier.caller) or await until_end(it, waiter, earlier, form))
        except ClientGone:
            it.submitter.drop(earlier.id, earlier.caller)
            raise


def _job_of(found: Outcome, ours: UUID) -> UUID:
    row = found.end.job if found.end is not None else found.row
    return ours if row is None else row.id


def ended(it: Door, end: End) -> Ended:
    """The rows of a job that succeeded. Raises JobFailed for any other; if all its items failed, with the first's."""
    rows = [] if end.result is None else unpack_rows(end.result)
    if end.job.state is not State.SUCCEEDED:
        raise failure_of(end.job, rows)
    return Ended(end.job, rows, scores_of(it, end.job, rows), len(end.result or b""))


def failure_of(job: Job, rows: list[dict[str, Any]]) -> JobFailed:
    """Why a job has no result: its own error, or that of its first item, which says more than that all failed."""
    return JobFailed.of(first_fault(rows) or error_of(job), job_id=str(job.id))


async def stream(request: Request, asked: Asked, *, size: int = 0) -> AsyncGenerator[Delta | Ended]:
    """The texts of a generation as they come, and then its end.

    Take the first one before the reply is begun (`begun`): errors of the request come with it. A job that fails later
    raises JobFailed in the middle. When the caller leaves, the work is dropped.
    """
    it = services(request)
    raw = {**asked.raw, "options": {**asked.raw.get("options", {}), "stream": True}}
    try:
        job = await admit(it, raw, caller=tenant(request), large=size > OFF_LOOP_BYTES)
        request.state.job_id = str(job.id)
        async with aclosing(_pieces(it, job, Form(HOLD_S, receive=request.receive))) as pieces:
            async for piece in pieces:
                yield piece
    except RoostError as error:
        raise renamed(error, asked.names) from None


async def _pieces(it: Services, job: Submission, form: Form) -> AsyncGenerator[Delta | Ended]:
    direct = is_direct(it, job, form)
    copy = direct_copy(it, job) if direct else replace(job, reply_to=it.instance)
    finished = False
    with (
        it.waiting.open(job.id, direct=copy if direct else None, follows=True) as waiter,
        Leaving(form.receive, waiter),
    ):
        try:
            if direct:
                await sent(it, waiter, copy)
            else:
                await stored(it, copy)
            async with aclosing(_heard(it, waiter, job, form)) as pieces:
                async for piece in pieces:
                    finished = isinstance(piece, Ended)
                    yield piece
        finally:
            # Whoever reads a stream has seen no id that would find its job again.
            if not finished:
                it.submitter.drop(job.id, job.caller)
            elif not job.keep:
                await forget(it, job.id)


async def _heard(it: Services, waiter: Waiter, job: Submission, form: Form) -> AsyncGenerator[Delta | Ended]:
    loop = asyncio.get_running_loop()
    texts, until = Texts(), loop.time() + form.wait
    while True:
        signal = await waiter.next(until)
        if signal is Nudge.SAID:
            until = loop.time() + LONGEST_STREAM_S
            for delta in texts.more(waiter.take()):
                yield delta
            continue
        if is_over(signal):
            over(it, signal)
            raise Stopping if signal is Nudge.CLOSING else StillRunning
        if (end := await heard(it, waiter, job, signal)) is not None:
            found = ended(it, end)
            for delta in texts.rest(found.rows):
                yield delta
            yield found
            return


async def begun(pieces: AsyncGenerator[Delta | Ended]) -> AsyncGenerator[Delta | Ended]:
    """The same pieces with the first one there already. Raises what the request is refused with."""
    first = await anext(pieces)

    async def rest() -> AsyncGenerator[Delta | Ended]:
        async with aclosing(pieces):
            yield first
            async for piece in pieces:
                yield piece

    return rest()
