"""GET /v1/jobs/{id}/events: the states of a job as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response

from api.answers import read_end
from api.identity import tenant
from api.media import dumps
from api.moves import job_id
from api.render import job_object
from api.route import KeyedRoute
from api.routes.jobs import JobId
from api.routes.replies import errors
from api.services import Services, services
from api.texts import Delta, Texts
from api.waiting import Nudge, Signal, Waiter, is_over
from tasks.api_keys import Scope
from tasks.errors import (
    BlobMissing,
    InvalidRequest,
    JobNotFound,
    ResultExpired,
    ResultNotStored,
    StoreUnavailable,
)
from tasks.jobs import Job, State
from tasks.notices import Change
from tasks.results import unpack_rows
from tasks.store import read

router = APIRouter(route_class=KeyedRoute, tags=["jobs"])

LONGEST_S = 3600.0
"""A stream ends after this; the client reconnects with Last-Event-ID."""


LOOK_S = 2.0
"""How often it is looked whether the caller's key is still good while nothing happens."""


class StreamOver(Exception):
    """The client has seen the last event of an ended job. Answered 204, which tells an EventSource not to come back."""


async def on_stream_over(request: Request, error: StreamOver) -> Response:
    """The exception handler of StreamOver."""
    return Response(status_code=204)


def last_seen(last_event_id: Annotated[str | None, Header(description="The id of the last event seen")] = None) -> int:
    """The version that the client has seen; 0 for none. Raises InvalidRequest."""
    if last_event_id is None or last_event_id == "":
        return 0
    if not last_event_id.isascii() or not last_event_id.isdigit() or len(last_event_id) > 18:
        raise InvalidRequest("'Last-Event-ID' must be the id of an event of this stream.", param="Last-Event-ID")
    return int(last_event_id)


async def find(
    request: Request,
    id: JobId,  # noqa: A002 - the name in the path
    seen: Annotated[int, Depends(last_seen)],
) -> Job:
    """The job, found before the stream begins, so that errors have a status. Raises JobNotFound, StreamOver."""
    job = await services(request).database.run(read.job, job_id(id), tenant(request))
    if job is None:
        raise JobNotFound
    if job.state.final and job.version <= seen:
        raise StreamOver
    return job


@router.get(
    "/v1/jobs/{id}/events",
    summary="Follow a job",
    response_class=EventSourceResponse,
    responses={
        204: {"description": "The job has ended and Last-Event-ID is its last event"},
        **errors(404, 422, 429, 503),
    },
)
async def events(
    request: Request, job: Annotated[Job, Depends(find)], seen: Annotated[int, Depends(last_seen)]
) -> AsyncIterator[ServerSentEvent]:
    """The job's state now, if it is newer than Last-Event-ID, then each state it comes to, until the job ends.

    An event's name is the state, its id the version of the job's row, its data the job. These are states, not a log:
    states that were passed while nobody looked are not told. `progress` says how many items of a running job are done.
    Of a job with the option `stream`, `delta` brings more of an item's text: `text` belongs at character `start`. All
    of a text has come before the last event. After a reconnect texts come from their beginning again.
    """
    it = services(request)
    until = asyncio.get_running_loop().time() + LONGEST_S
    texts = Texts() if job.options.get("stream") is True else None
    with it.waiting.open(job.id, ends_only=False, follows=texts is not None) as waiter:
        now = await it.database.run(read.job, job.id, job.caller)
        while True:
            if now is not None and now.version > seen:
                if texts is not None and now.state is State.SUCCEEDED:
                    for delta in texts.rest(await _rows(it, job)):
                        yield said(job, delta)
                seen = waiter.seen = now.version
                yield event(now.state.value, now)
            if now is None or now.state.final:
                return
            signal = await _next(request, waiter, until)
            while signal is Nudge.SAID:
                for delta in texts.more(waiter.take()) if texts is not None else ():
                    yield said(job, delta)
                signal = await _next(request, waiter, until)
            if is_over(signal):
                return
            if isinstance(signal, Change) and signal.version <= seen:
                if signal.items_done and signal.state == State.RUNNING:
                    yield event("progress", now, items_done=signal.items_done)
                continue
            try:
                now = await it.database.run(read.job, job.id, job.caller)
            except StoreUnavailable:
                return


async def _next(request: Request, waiter: Waiter, until: float) -> Signal:
    """The next signal. A stream may go on for longer than its caller's key is good, and ends with it."""
    loop, keys = asyncio.get_running_loop(), services(request).keys
    while True:
        signal = await waiter.next(min(until, loop.time() + LOOK_S))
        if not await keys.still_in(request.scope, Scope.READ):
            return Nudge.CLOSING
        if signal is not Nudge.TIMEOUT or loop.time() >= until:
            return signal


async def _rows(it: Services, job: Job) -> list[dict[str, Any]]:
    """The rows of an ended job's result; none if it is gone or the database is away."""
    try:
        found = await read_end(it, job.id, job.caller)
    except (JobNotFound, ResultExpired, ResultNotStored, BlobMissing, StoreUnavailable):
        return []
    return [] if found.result is None else unpack_rows(found.result)


def event(name: str, job: Job, **more: int) -> ServerSentEvent:
    """One event of the stream."""
    return ServerSentEvent(event=name, id=str(job.version), raw_data=dumps({**job_object(job), **more}).decode())


def said(job: Job, delta: Delta) -> ServerSentEvent:
    """One event with more of a text; without an id, so that Last-Event-ID stays the job's version."""
    body = {"id": str(job.id), "item": delta.item, "start": delta.start, "text": delta.text}
    return ServerSentEvent(event="delta", raw_data=dumps(body).decode())
