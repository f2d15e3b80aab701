"""POST /v1/generate/{model}: a text goes on, whole or as it comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from fastapi import APIRouter
from pydantic import Field, SkipValidation
from starlette.requests import Request
from starlette.responses import Response

from api.compat import sse
from api.compat.calls import begun, stream
from api.compat.endpoints import Asked, Ended
from api.compat.openai.sampling import Usage, usage_of
from api.compat.shapes import shaped
from api.compat.sie import replies
from api.compat.sie.caller import VERSION_HEADERS
from api.compat.sie.calling import ERRORS, MSGPACK_TOO, Accept, Model, Route, note_load, read, run
from api.compat.sie.generate_stream import events, failed_event
from api.compat.sie.grammars import native_grammar
from api.compat.sie.options import given
from api.route import documented
from api.schemas import Reply
from catalog.errors import RoostError, suggestion
from catalog.terms import Verb
from tasks.errors import LimitExceeded, TaskError
from tasks.items import Image, Strict

router = APIRouter(route_class=Route, tags=["sie"])

MOST_PROMPT_BYTES = 4 * 2**20
MOST_BODY_BYTES = 24 * 2**20
"""The peer's limits."""


class UnsupportedField(TaskError):
    """The body has a field that this route does not take."""

    code = "unsupported_field"


class GenerateBody(Strict):
    """A text to go on with. Without images it is read as it is, without the chat template."""

    prompt: str
    max_new_tokens: Annotated[int, Field(ge=1)]
    images: Annotated[list[Image] | None, SkipValidation] = None
    temperature: Annotated[float | None, SkipValidation, Field(description="0 if left out")] = None
    top_p: Annotated[float | None, SkipValidation] = None
    stop: Annotated[str | list[str] | None, SkipValidation] = None
    stream: bool | None = None
    frequency_penalty: Annotated[float | None, SkipValidation] = None
    presence_penalty: Annotated[float | None, SkipValidation] = None
    grammar: Annotated[
        dict[str, Any] | None, SkipValidation, Field(description="One of `json_schema`, `regex` and `ebnf`")
    ] = None
    seed: Annotated[int | None, SkipValidation] = None
    logit_bias: Annotated[dict[str, float] | None, SkipValidation] = None
    logprobs: Annotated[bool | None, SkipValidation] = None
    top_logprobs: Annotated[int | None, SkipValidation] = None
    lora_adapter: Annotated[str | None, SkipValidation] = None
    routing_key: Annotated[str | None, Field(description="Taken and not needed: every job goes where it fits")] = None
    prompt_cache_key: Annotated[str | None, Field(description="Taken and not needed")] = None
    safety_identifier: Annotated[str | None, Field(description="Taken, and kept nowhere")] = None
    options: Annotated[
        dict[str, Any] | None, SkipValidation, Field(description="`profile`, and the native options of `generate`")
    ] = None


class GenerateReply(Reply):
    """The text. `data` is what it says if it is JSON, else the text itself."""

    model: str
    text: str
    finish_reason: str
    usage: Usage
    data: Any
    timing: replies.SieTiming
    logprobs: list[dict[str, Any]] | None = None


_SAME = (
    "temperature",
    "top_p",
    "stop",
    "frequency_penalty",
    "presence_penalty",
    "grammar",
    "seed",
    "logit_bias",
    "logprobs",
    "top_logprobs",
)
_OWN = {**{name: name for name in _SAME}, "max_new_tokens": "max_tokens", "lora_adapter": "lora"}


def to_job(model: str, body: Mapping[str, Any]) -> Asked:
    """The generate job of a body; images and their prompt go through the chat template, as the peer has it."""
    for name in body:
        if name not in GenerateBody.model_fields:
            hint = suggestion(str(name), GenerateBody.model_fields)
            raise UnsupportedField(f"Unsupported field {str(name)[:100]!r}{hint}", param=str(name)[:200])
    sent = shaped(GenerateBody, body)
    if len(sent.prompt.encode()) > MOST_PROMPT_BYTES:
        raise LimitExceeded(f"'prompt' has more than {MOST_PROMPT_BYTES} bytes; send less.", param="prompt")
    asked = given(Verb.GENERATE, model, body, own=_OWN)
    names = {**asked.names, "items[0].text": "prompt", "items[0].images": "images", "items[0]": "prompt"}
    options = asked.options
    if "grammar" in options:
        options["grammar"], grammar_names = native_grammar(options["grammar"], names["options.grammar"])
        names |= grammar_names
    item: dict[str, Any] = {"text": sent.prompt}
    if body.get("images"):
        item["images"] = body["images"]
    else:
        options.setdefault("raw", True)
    return Asked({"verb": "generate", "model": asked.model, "items": [item], "options": options}, names)


def to_reply(ended: Ended) -> dict[str, Any]:
    """The body of a reply."""
    row = ended.rows[0]
    found = {
        "model": ended.job.model,
        "text": row["text"],
        "finish_reason": row["finish_reason"],
        "usage": usage_of(ended.job.usage),
        "data": data_of(row["text"]),
        "timing": replies.timing(ended.job),
    }
    if "logprobs" in row:
        found["logprobs"] = row["logprobs"]
    return found


def data_of(text: str) -> Any:
    """What a text says if it is JSON, else the text."""
    try:
        return orjson.loads(text)
    except ValueError:
        return text


def _signature(model: Model, body: GenerateBody, accept: Accept = None) -> None: ...


@router.post(
    "/v1/generate/{model:path}",
    summary="Go on with a text, as the peer's client asks",
    response_model=GenerateReply,
    response_model_exclude_unset=True,
    responses={200: {"content": {**MSGPACK_TOO, "text/event-stream": {}}}, **ERRORS},
)
@documented(_signature)
async def generate(request: Request) -> Response:
    """What a model writes after a text, as one job of the verb `generate`.

    With `stream` it comes as server-sent events `{"request_id", "seq", "text_delta", "done"}`; the last one has
    `done: true`, `finish_reason`, `usage` and `ttft_ms`, or an `error`, and `[DONE]` comes after it.
    """
    body, size, asked = await read(request, to_job)
    if size > MOST_BODY_BYTES:
        raise LimitExceeded(f"The body is larger than {MOST_BODY_BYTES} bytes; send less.", param="body")
    if body.get("stream"):
        return await _streamed(request, asked, size)
    replies.form(request)
    ended = await run(request, asked, size)
    return await replies.reply(request, ended, lambda: to_reply(ended), usage_of(ended.job.usage))


async def _streamed(request: Request, asked: Asked, size: int) -> Response:
    try:
        pieces = await begun(stream(request, asked, size=size))
    except RoostError as error:
        await note_load(request, asked, error)
        raise
    job_id: str = request.state.job_id
    reply = sse.reply(sse.unbroken(events(job_id, pieces), failed_event(job_id)))
    reply.headers.update({**VERSION_HEADERS, "x-sie-request-id": job_id, "x-sie-served-by": "local"})
    return reply
