"""OpenAI's files: what batches read and write. Their content is streamed to and from the blob store."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api.compat.dialect import route_class
from api.compat.openai import errors
from api.compat.openai.uploads import RAW_TYPES, taken_in
from api.identity import tenant
from api.media import Media, dumps
from api.queries import read_query
from api.route import documented
from api.schemas import Reply
from api.services import services
from tasks.errors import InvalidRequest, StoreUnavailable
from tasks.files import SHOWN, FileNotFound, StoredFile, parsed_id, shown_id
from tasks.prepare import job_id
from tasks.store import files as store

log = logging.getLogger(__name__)

router = APIRouter(route_class=route_class(errors.render), tags=["openai"])

PREFIX = SHOWN
"""Begins the id of a file."""

Purpose = Literal["batch", "batch_output", "backfill", "backfill_output"]

FileId = Annotated[str, Path(description="The file's id", examples=[f"{PREFIX}0199c0de000070008000000000000000"])]


class FileObject(Reply):
    """A file."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: Annotated[int, Field(description="Unix seconds")]
    expires_at: Annotated[int | None, Field(description="Unix seconds; then it is gone")]
    filename: str
    purpose: Purpose
    status: Literal["processed"]
    status_details: None


class FileList(Reply):
    """Some files; the next page begins after `last_id`."""

    object: Literal["list"]
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileDeleted(Reply):
    """A file that is gone."""

    id: str
    object: Literal["file"]
    deleted: Literal[True]


def file_object(file: StoredFile) -> dict[str, Any]:
    """A file as OpenAI's clients know it."""
    return {
        "id": shown_id(PREFIX, file.id),
        "object": "file",
        "bytes": file.bytes,
        "created_at": int(file.created_at.timestamp()),
        "expires_at": file.expires_at and int(file.expires_at.timestamp()),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def listed(prefix: str, ids: list[UUID], data: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page of a list as OpenAI's clients know it."""
    first, last = (shown_id(prefix, ids[0]), shown_id(prefix, ids[-1])) if ids else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more}


def after_id(prefix: str, after: str | None) -> UUID | None:
    """Where a page begins. Raises InvalidRequest for what is no id."""
    if after is None:
        return None
    found = parsed_id(prefix, after)
    if found is None:
        raise InvalidRequest(f"'after' must be an id that begins with {prefix!r}.", param="after")
    return found


def json_reply(body: dict[str, Any]) -> Response:
    """A reply of 200."""
    return Response(dumps(body), media_type=Media.JSON.value)


_FORM = {
    "type": "object",
    "required": ["file", "purpose"],
    "additionalProperties": False,
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"type": "string", "enum": ["batch", "backfill"]},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2592000},
    },
}


def _upload_signature(
    purpose: Annotated[
        Literal["batch", "backfill"] | None, Query(description="When the body is the file itself")
    ] = None,
    filename: Annotated[str | None, Query(description="When the body is the file itself")] = None,
) -> None: ...


@router.post(
    "/v1/files",
    summary="Upload a file",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {"schema": _FORM},
                RAW_TYPES[0]: {"schema": {"type": "string", "format": "binary"}},
            },
        }
    },
    response_model=FileObject,
    responses=errors.errors(415, 429, 503),
)
@documented(_upload_signature)
async def upload(request: Request) -> Response:
    """Keep a JSONL file for a batch, or a document or manifest for a backfill.

    It comes as a form, or as the body itself with `purpose` in the query.
    """
    it = services(request)
    came = await taken_in(request, it.blobs, it.settings.max_file_bytes)
    now = datetime.fromtimestamp(it.clock(), UTC)
    file = StoredFile(
        id=job_id(now.timestamp()),
        caller=tenant(request),
        filename=came.filename,
        purpose=came.fields["purpose"],
        bytes=came.bytes,
        blob=came.key,
        created_at=now,
        expires_at=now + timedelta(seconds=came.kept_s()),
    )
    try:
        await it.database.run(store.put, file)
    except StoreUnavailable:
        with suppress(OSError):
            await asyncio.to_thread(it.blobs.delete, came.key)
        raise
    return json_reply(file_object(file))


class ListQuery(BaseModel):
    """Which files to list."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    after: Annotated[str | None, Field(description="`last_id` of the page before")] = None
    order: Literal["asc", "desc"] = "desc"
    purpose: Purpose | None = None


def _listing_signature(query: Annotated[ListQuery, Query()]) -> None: ...


@router.get("/v1/files", summary="List files", response_model=FileList, responses=errors.errors(429, 503))
@documented(_listing_signature)
async def listing(request: Request) -> Response:
    """Files by the time of their upload, the newest first unless `order` says otherwise."""
    query = read_query(request, ListQuery)
    found = await services(request).database.run(
        store.page,
        tenant(request),
        after=after_id(PREFIX, query.after),
        limit=query.limit + 1,
        newest_first=query.order == "desc",
        purpose=query.purpose,
    )
    page = found[: query.limit]
    data = [file_object(file) for file in page]
    return json_reply(listed(PREFIX, [file.id for file in page], data, has_more=len(found) > query.limit))


def _one_signature(id: FileId) -> None: ...  # noqa: A002 - the name in the path


@router.get("/v1/files/{id}", summary="Look at a file", response_model=FileObject, responses=errors.errors(404, 503))
@documented(_one_signature)
async def look(request: Request) -> Response:
    """What is known of a file."""
    return json_reply(file_object(await _find(request)))


@router.get(
    "/v1/files/{id}/content",
    summary="Read a file",
    response_class=Response,
    responses={
        200: {
            "description": "The file as it is",
            "content": {RAW_TYPES[0]: {"schema": {"type": "string", "format": "binary"}}},
        },
        **errors.errors(404, 503),
    },
)
@documented(_one_signature)
async def content(request: Request) -> Response:
    """The content of a file, as it was uploaded or as a batch wrote it."""
    file = await _find(request)
    chunks = services(request).blobs.chunks(file.blob)
    try:
        first = await asyncio.to_thread(next, chunks, b"")
    except FileNotFoundError:
        raise FileNotFound from None
    except OSError as error:
        log.exception("file %s could not be read", file.id)
        raise StoreUnavailable("The store of files cannot be reached; try again later.") from error

    def whole() -> Any:
        yield first
        yield from chunks

    headers = {
        "content-length": str(file.bytes),
        "content-disposition": f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}",
        "x-content-type-options": "nosniff",
    }
    return StreamingResponse(whole(), media_type=RAW_TYPES[0], headers=headers)


@router.delete(
    "/v1/files/{id}", summary="Delete a file", response_model=FileDeleted, responses=errors.errors(404, 409, 503)
)
@documented(_one_signature)
async def delete(request: Request) -> Response:
    """Remove a file and its content. One that a batch still reads is kept: 409."""
    it = services(request)
    text = request.path_params["id"]
    blob = await it.database.run(store.delete, parsed_id(PREFIX, text), tenant(request))
    try:
        await asyncio.to_thread(it.blobs.delete, blob)
    except OSError:
        log.exception("the content of a deleted file is still in the store: %s", blob)
    return json_reply({"id": text, "object": "file", "deleted": True})


async def _find(request: Request) -> StoredFile:
    return await services(request).database.run(
        store.get, parsed_id(PREFIX, request.path_params["id"]), tenant(request)
    )
