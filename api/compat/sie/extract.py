"""POST /v1/extract/{model}: what a model finds in each item, in the peer's fields and as `data`."""

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
from api.compat.sie.calling import ERRORS, MSGPACK_TOO, Accept, Model, Route, read, run
from api.compat.sie.errors import item_error
from api.compat.sie.items import SieInput, native_items
from api.compat.sie.options import given
from api.compat.sie.replies import SieItemError, SieTiming, SieUsage
from api.media import Media
from api.route import documented
from api.schemas import Reply
from catalog.terms import Verb
from tasks.items import Strict

router = APIRouter(route_class=Route, tags=["sie"])


class ExtractParams(Strict):
    """What to look for."""

    labels: Annotated[list[str] | None, SkipValidation] = None
    output_schema: Annotated[dict[str, Any] | None, SkipValidation] = None
    instruction: Annotated[str | None, SkipValidation] = None
    options: Annotated[
        dict[str, Any] | None, SkipValidation, Field(description="`profile`, and the native options of `extract`")
    ] = None


class ExtractBody(Strict):
    """Items to look into."""

    items: Annotated[list[SieInput], SkipValidation]
    params: ExtractParams | None = None


class SieExtracted(Reply):
    """What was found in one item. `data` is what has no list of its own, or else the list that is there."""

    id: str | None = None
    entities: list[dict[str, Any]]
    relations: list[dict[str, Any]]
    classifications: list[dict[str, Any]]
    objects: list[dict[str, Any]]
    data: dict[str, Any] | list[dict[str, Any]]
    error: SieItemError | None = None


class ExtractReply(Reply):
    """What was found."""

    model: str
    items: list[SieExtracted]
    timing: SieTiming
    usage: SieUsage


_LISTS = ("entities", "relations", "classifications", "objects")


def to_job(model: str, body: Mapping[str, Any]) -> Asked:
    """The extract job of a body."""
    shaped(ExtractBody, body)
    asked = given(Verb.EXTRACT, model, body, inside="params", own={"instruction": "instruction"})
    params = body.get("params") or {}
    raw = {"verb": "extract", "model": asked.model, "items": native_items(body["items"]), "options": asked.options}
    names = dict(asked.names)
    for name in ("labels", "output_schema"):
        if params.get(name) is not None:
            raw[name] = params[name]
            names[name] = f"params.{name}"
    return Asked(raw, names)


def to_reply(ended: Ended, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a reply: one item for each of the request, with its error if it failed."""
    return {
        "model": ended.job.model,
        "items": [_item(row) for row in ended.rows],
        "timing": replies.timing(ended.job),
        "usage": replies.usage(ended.job),
    }


def _item(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"id": row["id"]} if "id" in row else {}
    found |= {name: row.get(name) or [] for name in _LISTS}
    found["data"] = _data(row)
    if "error" in row:
        found["error"] = item_error(row["error"])
    return found


def _data(row: Mapping[str, Any]) -> Any:
    """What a model gives besides lists; a count of windows says nothing of what was found."""
    data = row.get("data")
    if data and data.keys() != {"windows"}:
        return data
    return next((row[name] for name in _LISTS if row.get(name)), [])


def _signature(model: Model, body: ExtractBody, accept: Accept = None) -> None: ...


@router.post(
    "/v1/extract/{model:path}",
    summary="Extract from items, as the peer's client asks",
    response_model=ExtractReply,
    response_model_exclude_unset=True,
    responses={200: {"content": MSGPACK_TOO}, **ERRORS},
    openapi_extra={
        "requestBody": {"content": {Media.MSGPACK.value: {"schema": {"$ref": "#/components/schemas/ExtractBody"}}}}
    },
)
@documented(_signature)
async def extract(request: Request) -> Response:
    """What the model finds in each item, as one job of the verb `extract`."""
    replies.form(request)
    body, size, asked = await read(request, to_job)
    ended = await run(request, asked, size)
    return await replies.reply(request, ended, lambda: to_reply(ended, body), replies.usage(ended.job))
