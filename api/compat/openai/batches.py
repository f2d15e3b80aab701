"""OpenAI's batches: many requests in a file, answered in another. The work is done by the feeder, `api.feeding`."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from api.body import read_body
from api.compat.batchable import ENDPOINTS
from api.compat.dialect import route_class
from api.compat.openai import errors
from api.compat.openai.files import PREFIX as FILE
from api.compat.openai.files import after_id, json_reply, listed
from api.compat.shapes import shaped
from api.queries import read_query
from api.route import documented
from api.schemas import Reply
from api.services import services
from catalog.errors import nearest
from tasks.batches import CANCELLABLE, PREFIX, Batch, Status, window
from tasks.errors import AlreadyFinished, InvalidRequest
from tasks.files import INPUT, KEPT_S, LEAST_KEPT_S, MOST_KEPT_S, FileNotFound, parsed_id, shown_id
from tasks.items import Strict, fault
from tasks.prepare import CALLER, job_id
from tasks.store import batches as store
from tasks.store import files

router = APIRouter(route_class=route_class(errors.render), tags=["openai"])

BatchId = Annotated[str, Path(description="The batch's id", examples=[f"{PREFIX}0199c0de000070008000000000000000"])]


def _no_nul(value: str) -> str:
    """The database cannot hold it."""
    if "\0" in value:
        raise fault("must not hold the character U+0000")
    return value


_Name = Annotated[str, Field(max_length=64), AfterValidator(_no_nul)]
_Value = Annotated[str, Field(max_length=512), AfterValidator(_no_nul)]


class ExpiresAfter(Strict):
    """How long the files that a batch writes are kept."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=LEAST_KEPT_S, le=MOST_KEPT_S)]


class BatchRequest(Strict):
    """A batch to work through."""

    input_file_id: Annotated[str, Field(description="A file of the purpose `batch`")]
    endpoint: Annotated[str, Field(description=f"What its lines ask for: {', '.join(sorted(ENDPOINTS))}")]
    completion_window: Annotated[str, Field(description="Such as `24h`; a number and m, h or d, at most 14d")] = "24h"
    metadata: Annotated[dict[_Name, _Value] | None, Field(max_length=16, description="Kept and told")] = None
    output_expires_after: ExpiresAfter | None = None


class BatchFault(Reply):
    """What is wrong with the input file."""

    code: str
    line: Annotated[int | None, Field(description="The number of the line, from 1")]
    message: str
    param: str | None


class BatchFaults(Reply):
    """All that is told of them."""

    object: Literal["list"]
    data: list[BatchFault]


class Counts(Reply):
    """Lines: all, those with a reply in the output file, and those in the error file."""

    total: int
    completed: int
    failed: int


class CachedTokens(Reply):
    """Nothing is counted apart here."""

    cached_tokens: int


class ReasoningTokens(Reply):
    """Nothing is counted apart here."""

    reasoning_tokens: int


class BatchUsage(Reply):
    """Tokens of all lines that are done."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class BatchObject(Reply):
    """A batch. Times are Unix seconds."""

    id: str
    object: Literal["batch"]
    endpoint: str
    model: str | None
    errors: BatchFaults | None
    input_file_id: str
    completion_window: str
    status: Status
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: Counts
    usage: BatchUsage
    metadata: dict[str, str] | None
    progress_at: Annotated[int | None, Field(description="An extra: when a line last ended")]
    stalled: Annotated[bool, Field(description="An extra: it is open, and no line has ended for five minutes")]


class BatchList(Reply):
    """Some batches; the next page begins after `last_id`."""

    object: Literal["list"]
    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


def batch_object(batch: Batch, now: datetime) -> dict[str, Any]:
    """A batch as OpenAI's clients know it."""

    def seconds(moment: datetime | None) -> int | None:
        return None if moment is None else int(moment.timestamp())

    def ended(status: Status) -> int | None:
        return seconds(batch.ended_at) if batch.status is status else None

    read, made = batch.input_tokens, batch.output_tokens
    return {
        "id": shown_id(PREFIX, batch.id),
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": None if batch.errors is None else {"object": "list", "data": batch.errors},
        "input_file_id": shown_id(FILE, batch.input_file),
        "completion_window": batch.completion_window,
        "status": batch.status.value,
        "output_file_id": batch.output_file and shown_id(FILE, batch.output_file),
        "error_file_id": batch.error_file and shown_id(FILE, batch.error_file),
        "created_at": seconds(batch.created_at),
        "in_progress_at": seconds(batch.in_progress_at),
        "expires_at": seconds(batch.expires_at),
        "finalizing_at": seconds(batch.finalizing_at),
        "completed_at": ended(Status.COMPLETED),
        "failed_at": ended(Status.FAILED),
        "expired_at": ended(Status.EXPIRED),
        "cancelling_at": seconds(batch.cancelling_at),
        "cancelled_at": ended(Status.CANCELLED),
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + made,
        },
        "metadata": batch.labels,
        "progress_at": seconds(batch.progress_at),
        "stalled": batch.stalled(now),
    }


def _create_signature(body: BatchRequest) -> None: ...


@router.post(
    "/v1/batches",
    summary="Create a batch",
    response_model=BatchObject,
    responses=errors.errors(404, 415, 429, 503),
)
@documented(_create_signature)
async def create(request: Request) -> Response:
    """Work through the lines of a file, as bulk work.

    The file is looked at first, and refused as a whole if a line of it is no request.
    """
    it = services(request)
    asked = shaped(BatchRequest, (await read_body(request, it.settings.max_body_bytes)).value)
    if asked.endpoint not in ENDPOINTS:
        close = nearest(asked.endpoint, list(ENDPOINTS), 1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise InvalidRequest(f"'endpoint' must be one of {', '.join(sorted(ENDPOINTS))}{hint}", param="endpoint")
    window_ = window(asked.completion_window)
    id_ = parsed_id(FILE, asked.input_file_id)
    try:
        file = await it.database.run(files.get, id_, CALLER)
    except FileNotFound:
        raise FileNotFound(param="input_file_id") from None
    if file.purpose != INPUT:
        raise InvalidRequest(
            f"'input_file_id' must be a file of the purpose {INPUT!r}, not {file.purpose!r}.", param="input_file_id"
        )
    now = datetime.fromtimestamp(it.clock(), UTC)
    kept = asked.output_expires_after.seconds if asked.output_expires_after else KEPT_S
    new = store.NewBatch(
        id=job_id(now.timestamp()),
        caller=CALLER,
        endpoint=asked.endpoint,
        completion_window=asked.completion_window,
        input_file=file.id,
        labels=asked.metadata,
        output_expires_s=kept,
        folder=f"batches/{secrets.token_hex(20)}",
        created_at=now,
        expires_at=now + window_,
    )
    return json_reply(batch_object(await it.database.run(store.create, new), now))


class ListQuery(BaseModel):
    """Which batches to list."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    after: Annotated[str | None, Field(description="`last_id` of the page before")] = None


def _listing_signature(query: Annotated[ListQuery, Query()]) -> None: ...


@router.get("/v1/batches", summary="List batches", response_model=BatchList, responses=errors.errors(429, 503))
@documented(_listing_signature)
async def listing(request: Request) -> Response:
    """Batches, newest first."""
    it, query = services(request), read_query(request, ListQuery)
    after = after_id(PREFIX, query.after)
    found = await it.database.run(store.page, CALLER, after=after, limit=query.limit + 1)
    page, now = found[: query.limit], datetime.fromtimestamp(it.clock(), UTC)
    data = [batch_object(batch, now) for batch in page]
    return json_reply(listed(PREFIX, [batch.id for batch in page], data, has_more=len(found) > query.limit))


def _one_signature(id: BatchId) -> None: ...  # noqa: A002 - the name in the path


@router.get(
    "/v1/batches/{id}", summary="Look at a batch", response_model=BatchObject, responses=errors.errors(404, 503)
)
@documented(_one_signature)
async def look(request: Request) -> Response:
    """The batch as it is now, with its counts."""
    it = services(request)
    batch = await it.database.run(store.get, parsed_id(PREFIX, request.path_params["id"]), CALLER)
    return json_reply(batch_object(batch, datetime.fromtimestamp(it.clock(), UTC)))


@router.post(
    "/v1/batches/{id}/cancel",
    summary="Cancel a batch",
    response_model=BatchObject,
    responses=errors.errors(404, 409, 503),
)
@documented(_one_signature)
async def cancel(request: Request) -> Response:
    """Do no more lines. Those that are done are in the output file, the others in the error file.

    Cancelling twice changes nothing; a batch whose lines have all ended is a 409.
    """
    it = services(request)
    batch = await it.database.run(store.cancel, parsed_id(PREFIX, request.path_params["id"]), CALLER)
    if batch.status not in (Status.CANCELLING, Status.CANCELLED):
        names = " or ".join(status.value for status in CANCELLABLE)
        raise AlreadyFinished(f"The batch is {batch.status.value}; only one that is {names} can be cancelled.")
    return json_reply(batch_object(batch, datetime.fromtimestamp(it.clock(), UTC)))
