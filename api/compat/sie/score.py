"""POST /v1/score/{model}: a query against items, best first."""

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
from api.compat.sie.items import SieInput, native_item, native_items
from api.compat.sie.options import given
from api.compat.sie.replies import SieFailedItem, SieTiming, SieUsage
from api.media import Media
from api.route import documented
from api.schemas import Reply
from catalog.terms import Verb
from tasks.errors import LimitExceeded
from tasks.items import Strict

router = APIRouter(route_class=Route, tags=["sie"])

MOST_ITEMS = 1000
"""The peer's limit."""


class ScoreBody(Strict):
    """A query and what to score it against."""

    query: Annotated[SieInput, SkipValidation]
    items: Annotated[list[SieInput], SkipValidation]
    instruction: Annotated[str | None, SkipValidation] = None
    options: Annotated[
        dict[str, Any] | None,
        SkipValidation,
        Field(description="`profile`, `overflow_policy`, `score_mode`, and the native options of `score`"),
    ] = None


class SieScore(Reply):
    """One item of the ranking."""

    item_id: Annotated[str, Field(description="The item's own, or `item-` and its place in the request")]
    score: float
    rank: int


class ScoreReply(Reply):
    """The ranking, best first."""

    model: str
    query_id: str | None
    scores: list[SieScore]
    timing: SieTiming
    usage: SieUsage
    errors: Annotated[list[SieFailedItem] | None, Field(description="Items that failed and have no score")] = None


def to_job(model: str, body: Mapping[str, Any]) -> Asked:
    """The score job of a body."""
    shaped(ScoreBody, body)
    items = body["items"]
    if isinstance(items, list) and len(items) > MOST_ITEMS:
        raise LimitExceeded(f"A call scores at most {MOST_ITEMS} items; this one has {len(items)}.", param="items")
    asked = given(Verb.SCORE, model, body, own={"instruction": "instruction"})
    query = native_item(body["query"], "query")
    raw = {"verb": "score", "model": asked.model, "query": query, "items": native_items(items)}
    return Asked({**raw, "options": asked.options}, asked.names)


def to_reply(ended: Ended, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a reply. A failed item has no score, so it is in `errors` and its neighbours are ranked."""
    rows = ended.rows
    scores = [
        {"item_id": _id(rows[one["index"]], one["index"]), "score": one["score"], "rank": one["rank"]}
        for one in ended.scores or ()
    ]
    failed = [
        {"index": place, "id": _id(row, place), **item_error(row["error"])}
        for place, row in enumerate(rows)
        if "error" in row
    ]
    query = body["query"]
    return {
        "model": ended.job.model,
        "query_id": query.get("id") if isinstance(query, dict) else None,
        "scores": scores,
        "timing": replies.timing(ended.job),
        "usage": _usage(ended),
        **({"errors": failed} if failed else {}),
    }


def _usage(ended: Ended) -> dict[str, int]:
    return replies.usage(ended.job, pairs=len(ended.rows))


def _id(row: Mapping[str, Any], place: int) -> str:
    own: str = row.get("id", f"item-{place}")
    return own


def _signature(model: Model, body: ScoreBody, accept: Accept = None) -> None: ...


@router.post(
    "/v1/score/{model:path}",
    summary="Score items against a query, as the peer's client asks",
    response_model=ScoreReply,
    response_model_exclude_unset=True,
    responses={200: {"content": MSGPACK_TOO}, **ERRORS},
    openapi_extra={
        "requestBody": {"content": {Media.MSGPACK.value: {"schema": {"$ref": "#/components/schemas/ScoreBody"}}}}
    },
)
@documented(_signature)
async def score(request: Request) -> Response:
    """The items in the order of their scores, as one job of the verb `score`."""
    replies.form(request)
    body, size, asked = await read(request, to_job)
    ended = await run(request, asked, size)
    return await replies.reply(request, ended, lambda: to_reply(ended, body), _usage(ended))
