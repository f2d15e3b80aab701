"""POST /v1/rerank for clients of Cohere's v1, of Jina and of the peer, and POST /v2/rerank for those of Cohere's v2.

A ranking is a job of the verb `score`. `index` is a document's place in the request. A document that has no score fails
the call: left out of the ranking it would look like a bad one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from api.compat.calls import answered
from api.compat.cohere.documents import Document, shown, texts_of
from api.compat.cohere.errors import ERRORS, render
from api.compat.cohere.meta import CohereMeta, meta, tokens_of
from api.compat.dialect import route_class
from api.compat.endpoints import Asked, Ended, Endpoint
from api.compat.failures import check_rows
from api.compat.shapes import shaped, untaken
from api.route import documented
from api.schemas import Reply
from catalog.terms import Verb
from tasks.errors import InvalidRequest
from tasks.items import Strict
from tasks.request import MAX_OPTIONS

router = APIRouter(route_class=route_class(render), tags=["rerank"])

_WHOLE = "a document is one text here, cut where the model's input ends; see 'truncate'"
_NO_SPANS = "no model here tells which part of a document made its score"
_PRIORITIES = 1000


class _Request(Strict):
    model: Annotated[str, Field(min_length=1)]
    query: Annotated[str, Field(description="What the documents are ranked by; not blank")]
    documents: Annotated[list[Document], Field(min_length=1, fail_fast=True, description="Texts, or objects of texts")]
    top_n: Annotated[int | None, Field(ge=0, description="The best so many; 0 gives none, left out gives all")] = None
    rank_fields: Annotated[
        list[str] | None,
        Field(min_length=1, fail_fast=True, description="Which fields of objects are read, `text` if left out"),
    ] = None
    return_documents: Annotated[bool | None, Field(description="Give each document back beside its score")] = None
    truncate: Annotated[
        bool | None, Field(description="Cut what is longer than the model reads, which is the default; or refuse it")
    ] = None


class RerankRequest(_Request):
    """Documents to rank."""

    max_chunks_per_doc: Annotated[None, untaken(_WHOLE)] = None
    options: Annotated[
        dict[str, Any] | None, Field(max_length=MAX_OPTIONS, description="Options of the verb `score`")
    ] = None


class RerankV2Request(_Request):
    """Documents to rank."""

    max_tokens_per_doc: Annotated[None, untaken(_WHOLE)] = None
    relevant_spans: Annotated[None, untaken(_NO_SPANS)] = None
    priority: Annotated[int | None, Field(ge=0, lt=_PRIORITIES, description="0 is the most urgent")] = None


class RankedDocument(BaseModel):
    """A document as it was sent; a text is its `text`."""

    model_config = ConfigDict(extra="allow")

    text: Any


class Ranked(Reply):
    """One place of the ranking."""

    index: Annotated[int, Field(description="The document's place in the request")]
    relevance_score: Annotated[float, Field(description="On the scale of the model, its `tasks.score.scale`")]
    document: RankedDocument | None = None


class RerankUsage(Reply):
    """Tokens that the model read, the query with each document."""

    prompt_tokens: int
    total_tokens: int


class RerankReply(Reply):
    """The ranking, best first; equal scores are in the order of the request."""

    id: Annotated[str, Field(description="The job")]
    model: str
    results: list[Ranked]
    meta: CohereMeta
    usage: RerankUsage


def _asked(asked: _Request, options: Mapping[str, Any], **more: Any) -> Asked:
    own = {name: value for name in ("top_n", "truncate") if (value := getattr(asked, name)) is not None}
    if twice := own.keys() & options.keys():
        name = min(twice)
        raise InvalidRequest(f"{name!r} is given twice: leave it out of 'options'.", param=name)
    raw = {
        "verb": Verb.SCORE.value,
        "model": asked.model,
        "query": asked.query,
        "items": texts_of(asked.documents, asked.rank_fields),
        "options": {**options, **own},
        **more,
    }
    return Asked(raw, {**_NAMES, **{f"options.{name}": name for name in own}})


_NAMES: Mapping[str, str] = {"items": "documents", "verb": "model"}


def to_job(body: Mapping[str, Any]) -> Asked:
    """The score job of a body of /v1/rerank. Raises an error that names the field."""
    asked = shaped(RerankRequest, body)
    return _asked(asked, asked.options or {})


def to_job_v2(body: Mapping[str, Any]) -> Asked:
    """The score job of a body of /v2/rerank. Raises an error that names the field."""
    asked = shaped(RerankV2Request, body)
    # Cohere's most urgent is 0, ours 9.
    more = {} if asked.priority is None else {"priority": 9 - asked.priority * 10 // _PRIORITIES}
    return _asked(asked, {}, **more)


def _reply(version: str, ended: Ended, body: Mapping[str, Any]) -> dict[str, Any]:
    """The ranking of a job. Raises the error of its first document that has no score."""
    check_rows(ended, _NAMES)
    tokens = tokens_of(ended.rows)
    return {
        "id": str(ended.job.id),
        "model": ended.job.model,
        "results": [_ranked(score, body) for score in ended.scores or ()],
        "meta": meta(version, tokens),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _ranked(score: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    place = score["index"]
    found = {"index": place, "relevance_score": score["score"]}
    if body.get("return_documents"):
        document = body["documents"][place]
        found["document"] = shown(document, texts_of([document], body.get("rank_fields"))[0])
    return found


def to_reply(ended: Ended, body: Mapping[str, Any]) -> dict[str, Any]:
    """A reply of /v1/rerank, which Cohere's v1, Jina's and the peer's clients read."""
    return _reply("1", ended, body)


def to_reply_v2(ended: Ended, body: Mapping[str, Any]) -> dict[str, Any]:
    """A reply of /v2/rerank."""
    return _reply("2", ended, body)


ENDPOINT = Endpoint("/v1/rerank", to_job, to_reply)
ENDPOINT_V2 = Endpoint("/v2/rerank", to_job_v2, to_reply_v2)


def _signature(body: RerankRequest) -> None: ...


@router.post(ENDPOINT.path, summary="Rank documents by a query", response_model=RerankReply, responses=ERRORS)
@documented(_signature)
async def rerank(request: Request) -> Response:
    """The documents, best first, as one job of the verb `score`: for clients of Cohere's v1, Jina and the peer."""
    return await answered(request, ENDPOINT)


def _signature_v2(body: RerankV2Request) -> None: ...


@router.post(ENDPOINT_V2.path, summary="Rank as Cohere's v2 does", response_model=RerankReply, responses=ERRORS)
@documented(_signature_v2)
async def rerank_v2(request: Request) -> Response:
    """The documents, best first, as one job of the verb `score`: for clients of Cohere's v2."""
    return await answered(request, ENDPOINT_V2)
