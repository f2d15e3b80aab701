"""POST /v1/embed and /v2/embed as Cohere's clients call them: a dense vector for each text, in one type or several."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from api.compat.calls import answered
from api.compat.cohere.errors import ERRORS, render
from api.compat.cohere.meta import CohereMeta, meta, tokens_of
from api.compat.dialect import route_class
from api.compat.endpoints import Asked, Ended, Endpoint
from api.compat.failures import check_rows
from api.compat.openai.texts import listed
from api.compat.shapes import shaped, untaken
from api.route import documented
from api.schemas import Reply
from catalog.terms import Verb
from tasks.items import Strict, fault

router = APIRouter(route_class=route_class(render), tags=["cohere"])

_QUERY = "search_query"
_FLOAT = "float"
_TEXTS_ALONE = "texts alone are embedded here; for images there is the native API"


def _one_scale(value: object) -> object:
    """Cohere's bytes have one scale for all vectors of a model, ours one for each vector, and the reply no place."""
    if value in ("int8", "uint8"):
        raise fault("is not taken: such bytes need a scale, which this reply has no place for")
    return value


_MOST_TYPES = 4

Type = Annotated[Literal["float", "base64", "binary", "ubinary"], BeforeValidator(_one_scale)]


def _not_start(value: object) -> object:
    if value == "START":
        raise fault("is 'END' or 'NONE': a text is cut at its end")
    return value


class CohereEmbedRequest(Strict):
    """Texts to embed."""

    model: Annotated[str, Field(min_length=1)]
    texts: Annotated[list[str], Field(min_length=1, fail_fast=True)]
    input_type: Annotated[
        Literal["search_document", "search_query", "classification", "clustering"] | None,
        Field(description="`search_query` puts the model's own prompt for queries first"),
    ] = None
    embedding_types: Annotated[
        list[Type] | None, Field(min_length=1, max_length=_MOST_TYPES, description="`float` if left out")
    ] = None
    truncate: Annotated[
        Literal["END", "NONE"] | None,
        BeforeValidator(_not_start),
        Field(description="`END` cuts a text that is too long, which is the default; `NONE` refuses it"),
    ] = None
    images: Annotated[None, untaken(_TEXTS_ALONE)] = None


class CohereEmbedV2Request(CohereEmbedRequest):
    """Texts to embed."""

    output_dimension: Annotated[int | None, Field(ge=1, description="A length that the model was trained for")] = None
    inputs: Annotated[None, untaken(_TEXTS_ALONE)] = None
    max_tokens: Annotated[None, untaken("a text is read as far as the model reads")] = None


class CohereEmbedReply(Reply):
    """The vectors, in the order of `texts`: by their types, or without `embedding_types` on /v1 as they are."""

    id: Annotated[str, Field(description="The job")]
    response_type: Literal["embeddings_floats", "embeddings_by_type"]
    embeddings: list[list[float]] | dict[str, list[list[float]] | list[list[int]] | list[str]]
    texts: list[str]
    meta: CohereMeta


_NAMES: Mapping[str, str] = {
    "items": "texts",
    "verb": "model",
    "options.output_types": "model",
    "options.dimensions": "output_dimension",
    "options.is_query": "input_type",
    "options": "",
}


def _asked(asked: CohereEmbedRequest, dimensions: int | None) -> Asked:
    options: dict[str, Any] = {
        "output_types": ["dense"],
        "output_dtype": "float32",
        "truncate": asked.truncate != "NONE",
    }
    if asked.input_type == _QUERY:
        options["is_query"] = True
    if dimensions is not None:
        options["dimensions"] = dimensions
    items = listed(asked.texts, "texts")
    return Asked({"verb": Verb.ENCODE.value, "model": asked.model, "items": items, "options": options}, _NAMES)


def to_job(body: Mapping[str, Any]) -> Asked:
    """The encode job of a body of /v1/embed. Raises an error that names the field."""
    return _asked(shaped(CohereEmbedRequest, body), None)


def to_job_v2(body: Mapping[str, Any]) -> Asked:
    """The encode job of a body of /v2/embed. Raises an error that names the field."""
    asked = shaped(CohereEmbedV2Request, body)
    return _asked(asked, asked.output_dimension)


def _bits(vector: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.packbits(vector > 0)


_WRITE: Mapping[str, Callable[[NDArray[np.float32]], Any]] = {
    _FLOAT: lambda vector: vector,
    "base64": lambda vector: b64encode(vector.tobytes()).decode(),
    "ubinary": _bits,
    "binary": lambda vector: (_bits(vector).astype(np.int16) - 128).astype(np.int8),
}


def _reply(version: str, ended: Ended, body: Mapping[str, Any], types: list[str] | None) -> dict[str, Any]:
    check_rows(ended, _NAMES)
    vectors = [np.frombuffer(row["dense"]["values"], "<f4") for row in ended.rows]
    return {
        "id": str(ended.job.id),
        "response_type": "embeddings_floats" if types is None else "embeddings_by_type",
        "embeddings": vectors if types is None else {name: list(map(_WRITE[name], vectors)) for name in types},
        "texts": body["texts"],
        "meta": meta(version, tokens_of(ended.rows)),
    }


def to_reply(ended: Ended, body: Mapping[str, Any]) -> dict[str, Any]:
    """A reply of /v1/embed. Raises the error of the first text that has no vector."""
    return _reply("1", ended, body, body.get("embedding_types"))


def to_reply_v2(ended: Ended, body: Mapping[str, Any]) -> dict[str, Any]:
    """A reply of /v2/embed. Raises the error of the first text that has no vector."""
    return _reply("2", ended, body, body.get("embedding_types") or [_FLOAT])


ENDPOINT = Endpoint("/v1/embed", to_job, to_reply)
ENDPOINT_V2 = Endpoint("/v2/embed", to_job_v2, to_reply_v2)


def _signature(body: CohereEmbedRequest) -> None: ...


@router.post(ENDPOINT.path, summary="Embed as Cohere's v1 does", response_model=CohereEmbedReply, responses=ERRORS)
@documented(_signature)
async def embed(request: Request) -> Response:
    """One dense vector for each text, as one job of the verb `encode`."""
    return await answered(request, ENDPOINT)


def _signature_v2(body: CohereEmbedV2Request) -> None: ...


@router.post(ENDPOINT_V2.path, summary="Embed as Cohere's v2 does", response_model=CohereEmbedReply, responses=ERRORS)
@documented(_signature_v2)
async def embed_v2(request: Request) -> Response:
    """One dense vector for each text, as one job of the verb `encode`."""
    return await answered(request, ENDPOINT_V2)
