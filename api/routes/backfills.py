"""/v1/backfills: many documents through one verb or a chain. The feeder does the work, `api.feeding.backfills`."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Header, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from api import listing
from api.backfill_chain import chain_of
from api.backfill_objects import BackfillList, BackfillObject, DocumentList, backfill_object, document_object
from api.body import OFF_LOOP_BYTES, read_body
from api.door import key_of, off_loop
from api.identity import tenant
from api.media import Media, dumps
from api.queries import read_query
from api.route import PlainRoute, documented
from api.routes.replies import errors
from api.services import services
from tasks.backfills.backfill import FOLDER, PREFIX, Backfill, BackfillNotFound, DocumentState
from tasks.backfills.plan import BackfillRequest, Format, SourceRequest, parse_backfill, recipe_of
from tasks.backfills.sources import SourceRefused, Sources
from tasks.errors import InvalidRequest
from tasks.files import SHOWN, FileNotFound, parsed_id, shown_id
from tasks.prepare import job_id
from tasks.store import backfills as store
from tasks.store import files

router = APIRouter(route_class=PlainRoute, tags=["backfills"])

RETRIED = 20_000
"""Failed documents that are taken up again in one transaction."""

BackfillId = Annotated[
    str, Path(description="The backfill's id", examples=[f"{PREFIX}0199c0de000070008000000000000000"])
]


def _create_signature(
    body: BackfillRequest,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=256,
            description="Printable ASCII. A second request with the same key gets the first one's backfill.",
        ),
    ] = None,
) -> None: ...


@router.post(
    "/v1/backfills",
    summary="Create a backfill",
    status_code=201,
    response_model=BackfillObject,
    responses={
        200: {"model": BackfillObject, "description": "The key led to this one"},
        **errors(404, 408, 409, 413, 415, 422, 429, 503),
    },
)
@documented(_create_signature)
async def create(request: Request) -> Response:
    """Work through documents, as bulk work: parse them, cut them, encode them, and keep the rows in a file.

    The steps are checked before anything runs: each must be able to read what the one before it gives.
    """
    it, caller = services(request), tenant(request)
    key = key_of(request.headers)
    body = await read_body(request, it.settings.max_body_bytes)
    asked = await off_loop(body.size > OFF_LOOP_BYTES, parse_backfill, body.value)
    chain = await chain_of(it, asked.steps)
    if asked.output.format is Format.PARQUET and find_spec("pyarrow") is None:
        said = "'output.format' cannot be 'parquet' here: the server lacks pyarrow, of the extra `backfills`."
        raise InvalidRequest(said, param="output.format")
    await _check_source(request, asked.source)
    now = datetime.fromtimestamp(it.clock(), UTC)
    id_ = job_id(now.timestamp())
    plan = asked.model_dump(mode="json")
    new = store.NewBackfill(
        id=id_,
        caller=caller,
        name=asked.name or shown_id(PREFIX, id_),
        plan=plan,
        recipe=recipe_of(chain.steps, chain.models),
        folder=f"{FOLDER}/{secrets.token_hex(20)}",
        created_at=now,
        idempotency_key=key,
        body_hash=hashlib.sha256(orjson.dumps(plan, option=orjson.OPT_SORT_KEYS)).digest(),
    )
    made, replayed = await it.database.run(store.create, new)
    return _reply(made, 200 if replayed else 201)


async def _check_source(request: Request, source: SourceRequest) -> None:
    """What can be told before anybody looks. Raises FileNotFound or SourceRefused that names the field."""
    sources = Sources(services(request).settings.backfill_sources)
    if source.path is not None:
        _named("source.path", sources.check_glob, source.path)
    for place, one in enumerate(source.files or ()):
        if one.path is not None:
            _named(f"source.files[{place}].path", sources.check, one.path)
    if source.manifest is not None:
        try:
            await services(request).database.run(files.get, parsed_id(SHOWN, source.manifest), tenant(request))
        except FileNotFound:
            raise FileNotFound(param="source.manifest") from None


def _named(param: str, check: Callable[[str], None], path: str) -> None:
    try:
        check(path)
    except SourceRefused as error:
        error.param = param
        raise


class ListQuery(BaseModel):
    """Which backfills to list."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str | None, Field(description="Only those of this name", max_length=256)] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    after: Annotated[str | None, Field(description="`last_id` of the page before")] = None


def _listing_signature(query: Annotated[ListQuery, Query()]) -> None: ...


@router.get("/v1/backfills", summary="List backfills", response_model=BackfillList, responses=errors(422, 429, 503))
@documented(_listing_signature)
async def backfills(request: Request) -> Response:
    """Backfills, newest first."""
    query = read_query(request, ListQuery)
    after = listing.after(PREFIX, query.after)
    found = await services(request).database.run(
        store.page, tenant(request), name=query.name, after=after, limit=query.limit + 1
    )
    return _json(listing.page(found, query.limit, backfill_object))


def _one_signature(id: BackfillId) -> None: ...  # noqa: A002 - the name in the path


@router.get(
    "/v1/backfills/{id}", summary="Look at a backfill", response_model=BackfillObject, responses=errors(404, 503)
)
@documented(_one_signature)
async def look(request: Request) -> Response:
    """The backfill as it is now: its counts, how fast it goes, how long is left."""
    return await _changed(request, store.get)


@router.post(
    "/v1/backfills/{id}/pause",
    summary="Pause a backfill",
    response_model=BackfillObject,
    responses=errors(404, 409, 503),
)
@documented(_one_signature)
async def pause(request: Request) -> Response:
    """Begin no more documents. Those under way come to their end. Pausing twice changes nothing."""
    return await _changed(request, store.pause)


@router.post(
    "/v1/backfills/{id}/resume",
    summary="Resume a backfill",
    response_model=BackfillObject,
    responses=errors(404, 409, 503),
)
@documented(_one_signature)
async def resume(request: Request) -> Response:
    """Go on after a pause. One that has ended tries again what failed and what was not begun, and nothing else.

    One that is at work already is given as it is; one of which nothing is left to do is a 409.
    """
    database, last = services(request).database, 0
    while found := await database.run(store.retry, _id(request), tenant(request), last, RETRIED):
        last = found
    return await _changed(request, store.resume)


@router.post(
    "/v1/backfills/{id}/cancel",
    summary="Cancel a backfill",
    response_model=BackfillObject,
    responses=errors(404, 409, 503),
)
@documented(_one_signature)
async def cancel(request: Request) -> Response:
    """Do no more documents, and drop those under way. The rows of those that are done are kept.

    Cancelling twice changes nothing; a backfill that has ended otherwise is a 409.
    """
    return await _changed(request, store.cancel)


class DocumentQuery(BaseModel):
    """Which documents to list."""

    model_config = ConfigDict(extra="forbid")

    state: DocumentState | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    after: Annotated[int, Field(ge=0, description="`last_number` of the page before")] = 0


def _documents_signature(id: BackfillId, query: Annotated[DocumentQuery, Query()]) -> None: ...  # noqa: A002


@router.get(
    "/v1/backfills/{id}/documents",
    summary="List the documents of a backfill",
    response_model=DocumentList,
    responses=errors(404, 422, 503),
)
@documented(_documents_signature)
async def documents(request: Request) -> Response:
    """Documents in their order, all or those of one state.

    With `state=failed` it is the report of failures, also while the backfill runs.
    """
    query = read_query(request, DocumentQuery)
    it = services(request)
    backfill = await it.database.run(store.get, _id(request), tenant(request))
    found = await it.database.run(
        store.documents, backfill.id, state=query.state, after=query.after, limit=query.limit + 1
    )
    data = [document_object(one) for one in found[: query.limit]]
    last = data[-1]["number"] if data else None
    return _json({"object": "list", "data": data, "last_number": last, "has_more": len(found) > query.limit})


Change = Callable[[Any, UUID | None, str], Backfill]


async def _changed(request: Request, change: Change) -> Response:
    return _reply(await services(request).database.run(change, _id(request), tenant(request)))


def _id(request: Request) -> UUID:
    found = parsed_id(PREFIX, request.path_params["id"])
    if found is None:
        raise BackfillNotFound
    return found


def _reply(backfill: Backfill, status: int = 200) -> Response:
    body = backfill_object(backfill)
    headers = {"location": f"/v1/backfills/{body['id']}"} if status == 201 else None
    return Response(dumps(body), status_code=status, headers=headers, media_type=Media.JSON.value)


def _json(body: dict[str, Any]) -> Response:
    return Response(dumps(body), media_type=Media.JSON.value)
