"""Jobs of the peer's client on the paths of the native ones. They are native jobs, and each API sees the other's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi import Path as InPath
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.answers import Form, outcome
from api.body import OFF_LOOP_BYTES, Body, read_body
from api.compat.calls import admitted
from api.compat.dialect import route_class
from api.compat.sie import chunks, errors
from api.compat.sie.grammars import has_grammar
from api.compat.sie.job_request import to_native
from api.door import key_of, off_loop
from api.identity import tenant
from api.media import Media, dumps
from api.moves import cancel_job, find_job, job_id
from api.queries import NoQuery, read_query
from api.route import documented
from api.schemas import Reply
from api.services import Services, services
from catalog.terms import Verb
from tasks.errors import TaskError
from tasks.jobs import Job, State
from tasks.store import read
from tasks.store.pages import Filters

router = APIRouter(route_class=route_class(errors.render), tags=["jobs"])

PAGE = 100
"""Jobs in a list: the newest. The native list has pages and filters."""


class NoPlan(TaskError):
    """This job has no plan to execute or repair: it reads no store, and began to run when it was submitted."""

    code = "job_has_no_plan"


class SieChunk(Reply):
    """A part of a job's result."""

    seq: int
    items: int
    state: str
    ref: Annotated[str | None, Field(description="Where its bytes are, for an hour; null while there are none")]
    units: Annotated[int | None, Field(description="Tokens and the like that it read, of a job with one chunk")]
    error: errors.SieError | None


class SieOutput(Reply):
    """Where a job's result is."""

    chunks: list[SieChunk]


class SieSubmitted(Reply):
    """A job that was taken in."""

    id: str
    object: Literal["job"]
    operation: Verb
    model: str
    state: Literal["queued"]
    total_items: int
    chunks: int


class SieJob(Reply):
    """A job, as the peer's client reads it. Times are Unix seconds."""

    id: str
    object: Literal["job"]
    operation: Verb
    model: str
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    phase: Literal["queued", "running", "ended"]
    outcome: Annotated[
        Literal["succeeded", "partial", "failed", "cancelled", "expired"] | None,
        Field(description="`partial`: it succeeded, but for some items"),
    ]
    error_code: str | None
    total_items: int
    completed_items: int
    created_at: float
    finished_at: float | None
    output: SieOutput


class SieJobList(Reply):
    """The newest jobs."""

    object: Literal["list"]
    data: list[SieJob]
    has_more: bool


async def submit(request: Request) -> Response:
    """Take a job in, from a body that nobody has read yet."""
    return await take(request, await read_body(request, services(request).settings.max_body_bytes))


async def take(request: Request, body: Body) -> Response:
    """Take a job in: 201, or 200 with the job as it stands that an Idempotency-Key led to before."""
    it = services(request)
    large = body.size > OFF_LOOP_BYTES
    key = key_of(request.headers)
    slow = large or has_grammar(body.value)
    asked = await off_loop(slow, to_native, body.value)
    job = await admitted(it, asked, caller=tenant(request), large=large, key=key)
    found = await outcome(it, job, Form(0))
    row = found.end.job if found.end is not None else found.row
    if found.replayed and row is not None:
        headers = {"idempotent-replayed": "true"}
        return Response(dumps(await _told(request, row)), media_type=Media.JSON.value, headers=headers)
    told = {
        "id": str(job.id),
        "object": "job",
        "operation": job.verb.value,
        "model": job.model,
        "state": State.QUEUED.value,
        "total_items": job.items,
        "chunks": chunks.count(job.items),
    }
    headers = {"location": f"/v1/jobs/{job.id}"}
    return Response(dumps(told), status_code=201, media_type=Media.JSON.value, headers=headers)


async def look(request: Request) -> Response:
    """One job as it stands."""
    read_query(request, NoQuery)
    job = await find_job(services(request), job_id(request.path_params["id"]), tenant(request))
    return Response(dumps(await _told(request, job)), media_type=Media.JSON.value)


async def listing(request: Request) -> Response:
    """The newest jobs, whoever submitted them."""
    read_query(request, NoQuery)
    page = await services(request).database.run(read.page, tenant(request), Filters(), None, PAGE)
    data = [await _told(request, job) for job in page.jobs]
    body = {"object": "list", "data": data, "has_more": page.next_cursor is not None}
    return Response(dumps(body), media_type=Media.JSON.value)


async def cancel(request: Request) -> Response:
    """End a job that has not ended."""
    job = await cancel_job(services(request), job_id(request.path_params["id"]), tenant(request))
    return Response(dumps(await _told(request, job)), media_type=Media.JSON.value)


def _signature(
    id: Annotated[str, InPath(description="The job's id")],  # noqa: A002 - the name in the path
) -> None: ...


@router.post(
    "/v1/jobs/{id}/execute", summary="Execute a plan", response_model=None, responses=errors.errors(404, 409, 503)
)
@documented(_signature)
async def execute(request: Request) -> Response:
    """Always refused: a job here has no plan. It reads no store of the caller's, and runs once it is submitted."""
    await find_job(services(request), job_id(request.path_params["id"]), tenant(request))
    raise NoPlan


@router.post(
    "/v1/jobs/{id}/repair", summary="Repair a plan", response_model=None, responses=errors.errors(404, 409, 503)
)
@documented(_signature)
async def repair(request: Request) -> Response:
    """Always refused, as /execute is."""
    return await execute(request)


async def _told(request: Request, job: Job) -> dict[str, Any]:
    it = services(request)
    base = (services(request).settings.public_url or str(request.base_url)).rstrip("/")
    return job_status(job, done=it.progress.of(job.id), refs=await _refs(it, job, base))


async def _refs(it: Services, job: Job, base: str) -> list[str]:
    """The links to a job's chunks, good for an hour and no longer than the result is kept; none if it has no result.

    A result that is answered once is for the native API: whoever has a link may follow it as often as they like.
    """
    if not has_result(job) or not job.keep:
        return []
    until = it.clock() + chunks.LINK_S
    expires = int(until if job.expires_at is None else min(until, job.expires_at.timestamp()))
    key = await it.signing.key(chunks.SECRET)
    return [chunks.link(base, key, job.id, seq, expires) for seq in range(chunks.count(job.items))]


def has_result(job: Job) -> bool:
    """Whether there are rows to be read: those of a job whose items all failed say why."""
    return job.state is State.SUCCEEDED or (job.state is State.FAILED and job.items_failed > 0)


def job_status(job: Job, *, done: int, refs: list[str]) -> dict[str, Any]:
    """The peer's `JobStatus`. `done` is how many items of a running job are known to be."""
    ended = has_result(job)
    return {
        "id": str(job.id),
        "object": "job",
        "operation": job.verb.value,
        "model": job.model,
        "state": _STATES[job.state],
        "phase": "ended" if job.state.final else job.state.value,
        "outcome": _outcome(job),
        "error_code": _error_code(job),
        "total_items": job.items,
        "completed_items": job.items if ended else min(done, job.items) if job.state is State.RUNNING else 0,
        "created_at": job.created_at.timestamp(),
        "finished_at": _seconds(job.finished_at),
        "output": {"chunks": [_chunk(job, seq, refs) for seq in range(chunks.count(job.items))]},
    }


_STATES: Mapping[State, str] = {
    State.QUEUED: "queued",
    State.RUNNING: "running",
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
    State.EXPIRED: "failed",
}


def _chunk(job: Job, seq: int, refs: list[str]) -> dict[str, Any]:
    return {
        "seq": seq,
        "items": chunks.size(job.items, seq),
        "state": _STATES[job.state],
        "ref": refs[seq] if refs else None,
        "units": (job.usage or {}).get("tokens") if chunks.count(job.items) == 1 else None,
        "error": None if job.error is None else errors.item_error(job.error),
    }


def _outcome(job: Job) -> str | None:
    if not job.state.final:
        return None
    return "partial" if job.state is State.SUCCEEDED and job.items_failed else job.state.value


def _error_code(job: Job) -> str | None:
    if job.error is not None:
        return errors.code_of(job.error["code"])
    return "DEADLINE_PASSED" if job.state is State.EXPIRED else None


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
