"""POST /v1/embeddings: one dense vector for each text, all of them or an error."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.compat.calls import answered
from api.compat.dialect import route_class
from api.compat.endpoints import Asked, Ended, Endpoint
from api.compat.failures import check_rows
from api.compat.openai.errors import CALL_ERRORS, render
from api.compat.openai.texts import Texts, listed, names_of
from api.compat.shapes import shaped
from api.route import documented
from api.schemas import Reply
from catalog.terms import Verb
from tasks.items import Strict

router = APIRouter(route_class=route_class(render), tags=["openai"])


class EmbeddingsRequest(Strict):
    """Texts to embed. Fields that OpenAI does not have are extras of this service."""

    model: Annotated[str, Field(min_length=1)]
    input: Annotated[Texts, Field(description="A text or a list of texts; token ids are refused")]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1, description="A length that the model was trained for")] | None = None
    user: Annotated[str | None, Field(description="Taken, and kept nowhere")] = None
    truncate: Annotated[
        bool | None, Field(description="An extra: cut a text that is too long, instead of refusing it")
    ] = None
    normalize: Annotated[bool | None, Field(description="An extra: vectors of length 1, which is the default")] = None
    is_query: Annotated[bool | None, Field(description="An extra: put the model's own prompt for queries first")] = None
    prompt: Annotated[str | None, Field(description="An extra: the name of one of the model's own prompts")] = None
    instruction: Annotated[str | None, Field(description="An extra: a text to put before each input")] = None


class Embedding(Reply):
    """One vector."""

    object: Literal["embedding"]
    index: Annotated[int, Field(description="The place of its text in `input`")]
    embedding: Annotated[list[float] | str, Field(description="Numbers, or base64 of little-endian float32")]


class EmbeddingsUsage(Reply):
    """Tokens that the model read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsReply(Reply):
    """The vectors, in the order of `input`."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingsUsage


_EXTRAS = ("dimensions", "normalize", "is_query", "prompt", "instruction")


def to_job(body: Mapping[str, Any]) -> Asked:
    """The encode job of a body. A text that is too long is refused, as OpenAI does, unless `truncate` is set."""
    asked = shaped(EmbeddingsRequest, body)
    given = {name: value for name in _EXTRAS if (value := getattr(asked, name)) is not None}
    options = {"output_types": ["dense"], "output_dtype": "float32", "truncate": bool(asked.truncate), **given}
    items = listed(asked.input, "input")
    raw = {"verb": Verb.ENCODE.value, "model": asked.model, "items": items, "options": options}
    return Asked(raw, _names(body))


def to_reply(ended: Ended, body: Mapping[str, Any]) -> dict[str, Any]:
    """The vectors of the job, or the error of its first item that has none."""
    check_rows(ended, _names(body))
    write = _base64 if body.get("encoding_format") == "base64" else _numbers
    data = [
        {"object": "embedding", "index": index, "embedding": write(row["dense"]["values"])}
        for index, row in enumerate(ended.rows)
    ]
    tokens = sum(row["tokens"] for row in ended.rows)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": ended.job.model, "usage": usage}


def _names(body: Mapping[str, Any]) -> dict[str, str]:
    return {**names_of(body, "input"), "verb": "model", "options.output_types": "model", "options": ""}


def _base64(stored: bytes) -> str:
    return b64encode(stored).decode()


def _numbers(stored: bytes) -> np.ndarray[Any, Any]:
    return np.frombuffer(stored, "<f4")


ENDPOINT = Endpoint("/v1/embeddings", to_job, to_reply)


def _signature(body: EmbeddingsRequest) -> None: ...


@router.post(
    ENDPOINT.path,
    summary="Embed texts, as OpenAI does",
    response_model=EmbeddingsReply,
    responses=CALL_ERRORS,
)
@documented(_signature)
async def embeddings(request: Request) -> Response:
    """One dense vector for each text of `input`, as one job of the verb `encode`."""
    return await answered(request, ENDPOINT)
