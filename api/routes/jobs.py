"""One job after its submission: look, wait, cancel, try again, delete; and lists of jobs."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from api import prefer
from api.compat.sie import jobs as sie
from api.compat.sie.caller import or_peer
from api.compat.sie.jobs import SieJob, SieJobList
from api.forgetting import remove
from api.identity import tenant
from api.leaving import Leaving
from api.media import Media, dumps
from api.moves import cancel_job, find_job, job_id
from api.queries import read_query
from api.render import job_object, job_reply
from api.retrying import retry_job
from api.route import KeyedRoute, PlainRoute, documented
from api.routes.replies import errors
from api.schemas import DeletedJob, JobList, JobObject
from api.services import services
from api.waiting import is_over
from catalog.terms import Lane, Verb
from tasks.jobs import State
from tasks.moments import Moment
from tasks.store import change, read
from tasks.store.pages import Filters

router = APIRouter(route_class=KeyedRoute, tags=["jobs"])
plain = APIRouter(route_class=PlainRoute, tags=["jobs"])

JobId = Annotated[str, Path(description="The job's id", examples=["0199c0de-0000-7000-8000-000000000000"])]


def _look_signature(
    id: JobId,  # noqa: A002 - the name in the path
    wait: Annotated[
        float, Query(ge=0, description="Seconds to wait for the end, at most the server's ROOST_MAX_WAIT_S")
    ] = 0,
) -> None: ...


@plain.get(
    "/v1/jobs/{id}",
    summary="Look at a job, or wait for its end",
    response_model=JobObject | SieJob,
    responses=errors(404, 422, 429, 503),
)
@documented(_look_signature)
@or_peer(sie.look)
async def look(request: Request) -> Response:
    """The job as it is now. With `wait` the answer comes when the job ends, or after that many seconds."""
    it = services(request)
    id_ = job_id(request.path_params["id"])
    asked = request.query_params.get("wait")
    wait = 0.0 if asked is None else prefer.seconds(asked, it.settings.max_wait_s, "wait")
    if wait <= 0:
        return job_reply(await find_job(it, id_, tenant(request)), 200)
    until = asyncio.get_running_loop().time() + wait
    with it.waiting.open(id_) as waiter, Leaving(request.receive, waiter):
        job = await find_job(it, id_, tenant(request))
        while not job.state.final:
            signal = await waiter.next(until)
            job = await find_job(it, id_, tenant(request))
            if is_over(signal):
                break
    return job_reply(job, 200)


def _cancel_signature(id: JobId) -> None: ...  # noqa: A002 - the name in the path


@plain.post(
    "/v1/jobs/{id}/cancel",
    summary="Cancel a job",
    response_model=JobObject | SieJob,
    responses=errors(404, 409, 422, 429, 503),
)
@documented(_cancel_signature)
@or_peer(sie.cancel)
async def cancel(request: Request) -> Response:
    """End a job that has not ended. Once this is answered no result of it will be written.

    Cancelling a cancelled job changes nothing and is answered alike; a job that ended otherwise is a 409.
    """
    return job_reply(await cancel_job(services(request), job_id(request.path_params["id"]), tenant(request)), 200)


@router.post(
    "/v1/jobs/{id}/retry",
    summary="Try a job again",
    status_code=202,
    response_model=JobObject,
    responses=errors(404, 409, 422, 429, 503),
)
async def retry(request: Request, id: JobId) -> Response:  # noqa: A002 - the name in the path
    """Queue a job again that failed, was cancelled or expired. It keeps its id; its old error and result are gone."""
    job = await retry_job(services(request), job_id(id), tenant(request))
    return job_reply(job, 202, headers={"location": f"/v1/jobs/{job.id}", "retry-after": "1"})


@router.delete(
    "/v1/jobs/{id}",
    summary="Delete a job that has ended",
    response_model=DeletedJob,
    responses=errors(404, 409, 422, 429, 503),
)
async def delete(request: Request, id: JobId) -> Response:  # noqa: A002 - the name in the path
    """Its row goes with inputs and result, wherever they are kept, and its Idempotency-Key is free again."""
    it = services(request)
    id_ = job_id(id)
    await remove(it, await it.database.run(change.delete, id_, tenant(request)))
    return Response(dumps({"id": str(id_), "object": "job", "deleted": True}), media_type=Media.JSON.value)


class ListQuery(BaseModel):
    """Which jobs to list."""

    model_config = ConfigDict(extra="forbid")

    status: State | None = None
    verb: Verb | None = None
    model: Annotated[str | None, Field(description="The exact id, with its profile if one was asked for")] = None
    tag: str | None = None
    lane: Lane | None = None
    error: Annotated[str | None, Field(description="Failed ones with this error code", max_length=100)] = None
    since: Annotated[Moment | None, Field(description="Those created from this time on (RFC 3339)")] = None
    until: Annotated[Moment | None, Field(description="Those created before this time (RFC 3339)")] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    cursor: Annotated[str | None, Field(description="`next_cursor` of the page before")] = None


def _listing_signature(query: Annotated[ListQuery, Query()]) -> None: ...


@plain.get("/v1/jobs", summary="List jobs", response_model=JobList | SieJobList, responses=errors(422, 429, 503))
@documented(_listing_signature)
@or_peer(sie.listing)
async def listing(request: Request) -> Response:
    """Jobs that match every filter, newest first. Pages stay in place while new jobs come in."""
    query = read_query(request, ListQuery)
    filters = Filters(**query.model_dump(exclude={"limit", "cursor"}))
    page = await services(request).database.run(read.page, tenant(request), filters, query.cursor, query.limit)
    body = {
        "object": "list",
        "data": [job_object(job) for job in page.jobs],
        "has_more": page.next_cursor is not None,
        "next_cursor": page.next_cursor,
    }
    return Response(dumps(body), media_type=Media.JSON.value)
