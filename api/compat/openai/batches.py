"""OpenAI's batches: many requests in a file, answered in another. The work is done by the feeder, `api.feeding`."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from api.body import read_body
from api.compat.batchable import ENDPOINTS
from api.compat.dialect import route_class
from api.compat.openai import errors
from api.compat.openai.batch_objects import BatchList, BatchObject, BatchRequest, batch_object
from api.compat.openai.files import PREFIX as FILE
from api.compat.openai.files import after_id, json_reply, listed
from api.compat.shapes import shaped
from api.identity import tenant
from api.queries import read_query
from api.route import documented
from api.services import services
from catalog.errors import suggestion
from tasks.batches import CANCELLABLE, FOLDER, PREFIX, Status, window
from tasks.errors import AlreadyFinished, InvalidRequest
from tasks.files import INPUT, KEPT_S, FileNotFound, parsed_id
from tasks.prepare import job_id
from tasks.store import batches as store
from tasks.store import files

router = APIRouter(route_class=route_class(errors.render), tags=["openai"])

BatchId = Annotated[str, Path(description="The batch's id", examples=[f"{PREFIX}0199c0de000070008000000000000000"])]


async def resumes_at(request: Request) -> datetime | None:
    """When whoever asks may go on, if the day's quota is used."""
    return await services(request).limiter.resumes_at(tenant(request))


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
        hint = suggestion(asked.endpoint, ENDPOINTS)
        raise InvalidRequest(f"'endpoint' must be one of {', '.join(sorted(ENDPOINTS))}{hint}", param="endpoint")
    window_ = window(asked.completion_window)
    id_ = parsed_id(FILE, asked.input_file_id)
    try:
        file = await it.database.run(files.get, id_, tenant(request))
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
        caller=tenant(request),
        endpoint=asked.endpoint,
        completion_window=asked.completion_window,
        input_file=file.id,
        labels=asked.metadata,
        output_expires_s=kept,
        folder=f"{FOLDER}/{secrets.token_hex(20)}",
        created_at=now,
        expires_at=now + window_,
    )
    return json_reply(batch_object(await it.database.run(store.create, new), now, await resumes_at(request)))


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
    found = await it.database.run(store.page, tenant(request), after=after, limit=query.limit + 1)
    page, now = found[: query.limit], datetime.fromtimestamp(it.clock(), UTC)
    resumes = await resumes_at(request)
    data = [batch_object(batch, now, resumes) for batch in page]
    return json_reply(listed(PREFIX, [batch.id for batch in page], data, has_more=len(found) > query.limit))


def _one_signature(id: BatchId) -> None: ...  # noqa: A002 - the name in the path


@router.get(
    "/v1/batches/{id}", summary="Look at a batch", response_model=BatchObject, responses=errors.errors(404, 503)
)
@documented(_one_signature)
async def look(request: Request) -> Response:
    """The batch as it is now, with its counts."""
    it = services(request)
    batch = await it.database.run(store.get, parsed_id(PREFIX, request.path_params["id"]), tenant(request))
    return json_reply(batch_object(batch, datetime.fromtimestamp(it.clock(), UTC), await resumes_at(request)))


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
    batch = await it.database.run(store.cancel, parsed_id(PREFIX, request.path_params["id"]), tenant(request))
    if batch.status not in (Status.CANCELLING, Status.CANCELLED):
        names = " or ".join(status.value for status in CANCELLABLE)
        raise AlreadyFinished(f"The batch is {batch.status.value}; only one that is {names} can be cancelled.")
    return json_reply(batch_object(batch, datetime.fromtimestamp(it.clock(), UTC)))
