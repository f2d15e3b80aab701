"""POST /v1/completions: texts go on as a model would have them, without a chat template; each choice is an item."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from api.compat import sse
from api.compat.calls import answered, begun, stream, taken
from api.compat.dialect import route_class
from api.compat.endpoints import Asked, Ended, Endpoint
from api.compat.failures import check_rows
from api.compat.openai.errors import CALL_ERRORS, event_of, render
from api.compat.openai.legacy_logprobs import LegacyLogprobs, legacy
from api.compat.openai.sampling import Sampling, Usage, check_copies, options_of, usage_of
from api.compat.openai.texts import Texts, listed, names_of
from api.compat.shapes import shaped, untaken
from api.route import documented
from api.schemas import Reply
from api.texts import Delta
from catalog.terms import Verb
from tasks.errors import LimitExceeded
from tasks.items import fault

router = APIRouter(route_class=route_class(render), tags=["openai"])

MAX_TOKENS = 16
"""OpenAI's default for this endpoint."""

MAX_LOGPROBS = 20

MOST_CHOICES = 4096
"""Of all prompts together."""


class CompletionsRequest(Sampling):
    """Texts to go on with."""

    model: Annotated[str, Field(min_length=1)]
    prompt: Annotated[Texts, Field(description="A text or a list of texts; token ids are refused")]
    logprobs: Annotated[
        int | None, Field(ge=0, le=MAX_LOGPROBS, description="Tell each token's, and those of so many of the likeliest")
    ] = None
    echo: Annotated[bool | None, Field(description="Give the prompt before its text")] = None
    best_of: Annotated[int | None, Field(description="Refused, but for as many as `n`")] = None
    suffix: Annotated[None, untaken("no model here fills a text in between"), Field(description="Refused")] = None

    @model_validator(mode="after")
    def _can_be_done(self) -> CompletionsRequest:
        if self.best_of not in (None, self.choices):
            raise fault("is not taken: ask for as many choices as you want by 'n'", "best_of")
        if self.echo and self.logprobs is not None:
            raise fault("cannot be had with 'logprobs': those of a prompt are not computed", "echo")
        return self


class CompletionChoice(Reply):
    """One text."""

    index: Annotated[int, Field(description="Choices of the first prompt come first, then those of the second")]
    text: str
    logprobs: LegacyLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class CompletionsReply(Reply):
    """All texts, or as an event of a stream one piece of one."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


def to_job(body: Mapping[str, Any]) -> Asked:
    """The generate job of a body; the prompts go in as they are."""
    asked = shaped(CompletionsRequest, body)
    prompts = listed(asked.prompt, "prompt")
    if asked.choices > 1 and len(prompts) * asked.choices > MOST_CHOICES:
        raise LimitExceeded(f"'n' makes more than {MOST_CHOICES} choices of these prompts; ask for fewer.", param="n")
    check_copies(prompts, asked.choices)
    options = {"max_tokens": MAX_TOKENS, **options_of(asked), "raw": True}
    if asked.logprobs is not None:
        options |= {"logprobs": True, "top_logprobs": asked.logprobs}
    items = [prompt for prompt in prompts for _ in range(asked.choices)]
    raw = {"verb": Verb.GENERATE.value, "model": asked.model, "items": items, "options": options}
    return Asked(raw, _names(body))


def to_reply(ended: Ended, body: Mapping[str, Any]) -> dict[str, Any]:
    """The texts of the job, or the error of its first item that has none."""
    check_rows(ended, _names(body))
    before = _echoed(body) if body.get("echo") else [""] * len(ended.rows)
    choices = [_choice(index, before[index] + row["text"], row, body) for index, row in enumerate(ended.rows)]
    head = _head(str(ended.job.id), ended.job.model, int(ended.job.created_at.timestamp()))
    return {**head, "choices": choices, "usage": usage_of(ended.job.usage, body.get("n") or 1)}


def _names(body: Mapping[str, Any]) -> dict[str, str]:
    return {**names_of(body, "prompt", body.get("n") or 1), "verb": "model", "options.raw": "prompt", "options": ""}


def _echoed(body: Mapping[str, Any]) -> list[str]:
    """The prompt of each choice."""
    return [prompt for prompt in listed(body["prompt"], "prompt") for _ in range(body.get("n") or 1)]


def _head(job_id: str, model: str, created: int) -> dict[str, Any]:
    return {"id": f"cmpl-{job_id}", "object": "text_completion", "created": created, "model": model}


def _choice(index: int, text: str, row: Mapping[str, Any] | None, body: Mapping[str, Any]) -> dict[str, Any]:
    """A choice, or with no row a piece of one."""
    top = body.get("logprobs")
    told = None if row is None or top is None else legacy(row["logprobs"], row["text"], top)
    return {"index": index, "text": text, "logprobs": told, "finish_reason": row and row["finish_reason"]}


async def events(
    job_id: str, pieces: AsyncGenerator[Delta | Ended], body: Mapping[str, Any], created: int
) -> AsyncGenerator[bytes]:
    """The events of a stream. Log probabilities come with the last one of each choice."""
    head = _head(job_id, body["model"], created)
    tells_usage = (body.get("stream_options") or {}).get("include_usage", False)

    def event(choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> bytes:
        return sse.data({**head, "choices": choices, **({"usage": usage} if tells_usage else {})})

    if body.get("echo"):
        for index, prompt in enumerate(_echoed(body)):
            yield event([_choice(index, prompt, None, body)])
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Delta):
                yield event([_choice(piece.item, piece.text, None, body)])
                continue
            check_rows(piece, _names(body))
            for index, row in enumerate(piece.rows):
                yield event([_choice(index, "", row, body)])
            if tells_usage:
                yield event([], usage_of(piece.job.usage, body.get("n") or 1))
    yield sse.DONE


ENDPOINT = Endpoint("/v1/completions", to_job, to_reply)


def _signature(body: CompletionsRequest) -> None: ...


@router.post(
    ENDPOINT.path,
    summary="Go on with texts, as OpenAI does",
    response_model=CompletionsReply,
    responses={200: {"content": {"text/event-stream": {}}}, **CALL_ERRORS},
)
@documented(_signature)
async def completions(request: Request) -> Response:
    """The likeliest or a drawn continuation of each prompt, as one job of the verb `generate`.

    With `stream` the texts come as server-sent events, each of them a reply with a piece of one choice; `[DONE]` ends
    them. An error after the first of them is an event with `error`.
    """
    call = await taken(request, ENDPOINT)
    if not call.body.get("stream"):
        return await answered(request, ENDPOINT, call)
    pieces = await begun(stream(request, call.asked, size=call.size))
    return sse.reply(sse.unbroken(events(request.state.job_id, pieces, call.body, int(time.time())), event_of))
