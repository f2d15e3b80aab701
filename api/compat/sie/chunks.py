"""Results of jobs in chunks, each behind a link that needs no credentials: nobody can guess it, and it expires."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

import msgpack
from fastapi import APIRouter, Query
from fastapi import Path as InPath
from starlette.requests import Request
from starlette.responses import Response

from api.answers import read_end
from api.compat.dialect import route_class
from api.compat.sie import errors
from api.compat.sie.arrays import written
from api.compat.sie.errors import item_error
from api.media import Media
from api.moves import job_id
from api.route import documented, needs
from api.services import services
from tasks.errors import (
    BlobMissing,
    JobNotFound,
    JobNotTerminal,
    NotFinished,
    ResultExpired,
    ResultNotStored,
    TaskError,
)
from tasks.results import unpack_rows

router = APIRouter(route_class=route_class(errors.render), tags=["jobs"])

CHUNK_ITEMS = 1000
"""The most items of a chunk."""

LINK_S = 3600
"""How long a link is good for; each look at the job gives new ones."""

SECRET = "result links"  # noqa: S105 - the name of one

OCTETS = "application/octet-stream"


class ResultNotFound(TaskError):
    """There is no such result, or the link has expired; look at the job again for a new one."""

    code = "result_not_found"


def _signature(
    id: Annotated[str, InPath(description="The job's id")],  # noqa: A002 - the name in the path
    seq: Annotated[str, InPath(description="The chunk, from 0")],
    expires: Annotated[str, Query(description="As the job's `ref` has it, as all of this link")] = "",
    signature: Annotated[str, Query(description="As the job's `ref` has it")] = "",
) -> None: ...


@router.get(
    "/v1/jobs/{id}/chunks/{seq}",
    summary="Get a chunk of a job's result",
    response_class=Response,
    responses={
        200: {"content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}}},
        **errors.errors(404, 409, 503),
    },
)
@needs(None)
@documented(_signature)
async def chunk(request: Request) -> Response:
    """A msgpack array with one map for each of at most 1000 items, for who has the link out of the job's `output`.

    Of an item: `work_item_id`, `request_id`, `item_index`, `success`, `id`, `units` (tokens and the like that were
    read), `result_msgpack` with what the verb gives, or `error` and `error_code`.
    """
    it = services(request)
    path, query = request.path_params, request.query_params
    id_, seq, expires = path["id"], path["seq"], query.get("expires", "")
    key = await it.signing.key(SECRET)
    if not hmac.compare_digest(signature(key, id_, seq, expires).encode(), query.get("signature", "").encode()):
        raise ResultNotFound
    if int(expires) <= it.clock():
        raise ResultNotFound
    try:
        found = await read_end(it, job_id(id_), None)
    except NotFinished:
        raise JobNotTerminal from None
    except (JobNotFound, ResultExpired, ResultNotStored, BlobMissing):
        raise ResultNotFound from None
    if found.result is None:
        raise ResultNotFound
    return Response(await asyncio.to_thread(packed, found.job.id, found.result, int(seq)), media_type=OCTETS)


def signature(key: bytes, id_: str, seq: str, expires: str) -> str:
    """What proves that a link was handed out here. No part may be read as another: none of them holds a slash."""
    return hmac.new(key, f"{id_}/{seq}/{expires}".encode(), hashlib.sha256).hexdigest()


def link(base: str, key: bytes, id_: UUID, seq: int, expires: int) -> str:
    """The address of a chunk until Unix second `expires`. `base` is the service's own, without a slash at its end."""
    sign = signature(key, str(id_), str(seq), str(expires))
    return f"{base}/v1/jobs/{id_}/chunks/{seq}?expires={expires}&signature={sign}"


def count(items: int) -> int:
    """How many chunks a job of so many items has."""
    return -(-items // CHUNK_ITEMS)


def size(items: int, seq: int) -> int:
    """How many items are in a chunk."""
    return min(CHUNK_ITEMS, items - seq * CHUNK_ITEMS)


def packed(id_: UUID, result: bytes, seq: int) -> bytes:
    """The bytes of one chunk of a stored result. Raises ResultNotFound when it has no such chunk."""
    first = seq * CHUNK_ITEMS
    rows = unpack_rows(result)[first : first + CHUNK_ITEMS]
    if not rows:
        raise ResultNotFound
    return bytes(msgpack.packb([work_result(str(id_), first + place, row) for place, row in enumerate(rows)]))


def work_result(job: str, index: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """One item as the peer's `WorkResult`."""
    error = None if "error" not in row else item_error(row["error"])
    told = {name: value for name, value in row.items() if name not in _OUTSIDE}
    return {
        "work_item_id": f"{job}/{index}",
        "request_id": job,
        "item_index": index,
        "success": error is None,
        "id": row.get("id"),
        "units": row.get("tokens"),
        "result_msgpack": None if error is not None else msgpack.packb(written([told], Media.MSGPACK)[0]),
        "error": None if error is None else error["message"],
        "error_code": None if error is None else error["code"],
    }


_OUTSIDE: Sequence[str] = ("id", "tokens", "error")
