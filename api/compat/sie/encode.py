"""POST /v1/encode/{model}: vectors of each item, as numpy arrays in msgpack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field, SkipValidation
from starlette.requests import Request
from starlette.responses import Response

from api.compat.endpoints import Asked, Ended
from api.compat.shapes import shaped
from api.compat.sie import replies
from api.compat.sie.arrays import written
from api.compat.sie.caller import is_peer
from api.compat.sie.calling import ERRORS, MSGPACK_TOO, Accept, Model, Route, read, run
from api.compat.sie.errors import item_error
from api.compat.sie.items import SieInput, native_items
from api.compat.sie.options import given
from api.compat.sie.replies import SieFailedItem, SieItemError, SieTiming, SieUsage
from api.media import Media
from api.route import documented
from api.schemas import Multivector, Reply, Sparse, Vector
from catalog.options import OutputDtype, OutputType
from catalog.terms import Verb
from tasks.items import Strict

router = APIRouter(route_class=Route, tags=["sie"])


class EncodeParams(Strict):
    """What to give of each item."""

    output_types: Annotated[list[OutputType] | None, SkipValidation] = None
    output_dtype: Annotated[OutputDtype | None, SkipValidation] = None
    instruction: Annotated[str | None, SkipValidation] = None
    options: Annotated[
        dict[str, Any] | None,
        SkipValidation,
        Field(description="`profile`, `is_query`, `overflow_policy`, and the native options of `encode`"),
    ] = None


class EncodeBody(Strict):
    """Items to encode."""

    items: Annotated[list[SieInput], SkipValidation]
    params: EncodeParams | None = None


class SieEncoded(Reply):
    """One item. Vectors are lists in JSON, and in msgpack maps with binary keys that the client reads as arrays."""

    id: str | None = None
    dense: Vector | None = None
    sparse: Sparse | None = None
    multivector: Multivector | None = None
    tokens: int | None = None
    truncated: bool | None = None
    error: SieItemError | None = None


class EncodeReply(Reply):
    """The vectors."""

    model: str
    items: list[SieEncoded]
    timing: SieTiming
    usage: SieUsage
    errors: Annotated[
        list[SieFailedItem] | None,
        Field(description="Items that failed and are not in `items`, of a call of the peer's own client"),
    ] = None


_OWN = {"output_types": "output_types", "output_dtype": "output_dtype", "instruction": "instruction"}
_BINARY = "binary"


def to_job(model: str, body: Mapping[str, Any]) -> Asked:
    """The encode job of a body."""
    shaped(EncodeBody, body)
    asked = given(Verb.ENCODE, model, body, inside="params", own=_OWN)
    raw = {"verb": "encode", "model": asked.model, "items": native_items(body["items"]), "options": asked.options}
    return Asked(raw, asked.names)


def to_reply(ended: Ended, body: Mapping[str, Any], media: Media, *, drops: bool) -> dict[str, Any]:
    """The body of a reply. With `drops` items that failed are left out of `items` and told in `errors`.

    The peer's client takes an item without vectors for a success, but raises IncompleteBatchError, which has the
    others, where one is missing.
    """
    failed = [] if not ended.job.items_failed else _failed(ended)
    rows = [row for row in ended.rows if "error" not in row] if drops else ended.rows
    for row in rows:
        if "error" in row:
            row["error"] = item_error(row["error"])
    items = written(rows, media)
    params = body.get("params") or {}
    if (params.get("output_dtype") or (params.get("options") or {}).get("output_dtype")) == _BINARY:
        for item in items:
            if "dense" in item:
                item["dense"]["dtype"] = _BINARY
    told = {"errors": failed} if drops and failed else {}
    used = replies.usage(ended.job)
    return {"model": ended.job.model, "items": items, "timing": replies.timing(ended.job), "usage": used, **told}


def _failed(ended: Ended) -> list[dict[str, Any]]:
    return [
        {"index": place, **({"id": row["id"]} if "id" in row else {}), **item_error(row["error"])}
        for place, row in enumerate(ended.rows)
        if "error" in row
    ]


def _signature(model: Model, body: EncodeBody, accept: Accept = None) -> None: ...


@router.post(
    "/v1/encode/{model:path}",
    summary="Encode items, as the peer's client asks",
    response_model=EncodeReply,
    response_model_exclude_unset=True,
    responses={200: {"content": MSGPACK_TOO}, **ERRORS},
    openapi_extra={
        "requestBody": {"content": {Media.MSGPACK.value: {"schema": {"$ref": "#/components/schemas/EncodeBody"}}}}
    },
)
@documented(_signature)
async def encode(request: Request) -> Response:
    """The vectors of each item, as one job of the verb `encode`."""
    media = replies.form(request)
    body, size, asked = await read(request, to_job)
    ended = await run(request, asked, size)
    drops = is_peer(request)
    used = replies.usage(ended.job)
    return await replies.reply(request, ended, lambda: to_reply(ended, body, media, drops=drops), used)
