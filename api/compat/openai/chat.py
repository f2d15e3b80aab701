"""POST /v1/chat/completions: a conversation goes on; each choice is an item of one job."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.body import OFF_LOOP_BYTES
from api.compat import sse
from api.compat.calls import answered, begun, stream, taken
from api.compat.dialect import route_class
from api.compat.endpoints import Asked, Ended, Endpoint
from api.compat.failures import check_rows
from api.compat.openai.chat_request import Chat, ChatRequest, chat_of, reread
from api.compat.openai.chat_stream import call_object, events, finish_of
from api.compat.openai.errors import CALL_ERRORS, event_of, render
from api.compat.openai.sampling import Usage, usage_of
from api.compat.openai.toolcalls import Call
from api.compat.openai.wording import Part, Thought, Words, parts_of
from api.door import off_loop
from api.route import documented
from api.schemas import Reply

router = APIRouter(route_class=route_class(render), tags=["openai"])


class TokenLogprob(Reply):
    """A token and how likely the model held it, before any option changed that; a natural logarithm."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprobs(TokenLogprob):
    """One new token, and the likeliest in its place."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(Reply):
    """Of each new token, in order."""

    content: list[TokenLogprobs]
    refusal: None


class ToolFunction(Reply):
    """A function, and its arguments as a text of JSON."""

    name: str
    arguments: str


class ChatToolCall(Reply):
    """A call that the model makes."""

    id: str
    type: Literal["function"]
    function: ToolFunction


class ChatAnswer(Reply):
    """What the model says."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: Annotated[str | None, Field(description="What it thought aloud before")] = None
    tool_calls: list[ChatToolCall] | None = None


class ChatChoice(Reply):
    """One answer."""

    index: int
    message: ChatAnswer
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class ChatReply(Reply):
    """All answers."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


def to_job(body: Mapping[str, Any]) -> Asked:
    """The generate job of a body."""
    return chat_of(body).asked


def to_reply(ended: Ended, body: Mapping[str, Any]) -> dict[str, Any]:
    """The answers of the job, or the error of its first item that has none."""
    chat = reread(body)
    check_rows(ended, chat.asked.names)
    return {
        "id": f"chatcmpl-{ended.job.id}",
        "object": "chat.completion",
        "created": int(ended.job.created_at.timestamp()),
        "model": ended.job.model,
        "choices": [_choice(index, row, chat, ended.job.id.hex) for index, row in enumerate(ended.rows)],
        "usage": usage_of(ended.job.usage, chat.choices),
    }


def _choice(index: int, row: Mapping[str, Any], chat: Chat, job: str) -> dict[str, Any]:
    parts = parts_of(row["text"], chat.calling)
    calls = [part for part in parts if isinstance(part, Call)]
    return {
        "index": index,
        "message": _message(parts, calls, f"{job}_{index}"),
        "logprobs": {"content": row["logprobs"], "refusal": None} if chat.logprobs else None,
        "finish_reason": finish_of(row, calls=bool(calls)),
    }


def _message(parts: Sequence[Part], calls: Sequence[Call], mark: str) -> dict[str, Any]:
    words = "".join(part.text for part in parts if isinstance(part, Words))
    found: dict[str, Any] = {"role": "assistant", "content": None if calls and not words else words, "refusal": None}
    if thoughts := "".join(part.text for part in parts if isinstance(part, Thought)):
        found["reasoning_content"] = thoughts
    if calls:
        found["tool_calls"] = [call_object(call, f"{mark}_{place}") for place, call in enumerate(calls)]
    return found


ENDPOINT = Endpoint("/v1/chat/completions", to_job, to_reply)


def _signature(body: ChatRequest) -> None: ...


@router.post(
    ENDPOINT.path,
    summary="Go on with a conversation, as OpenAI does",
    response_model=ChatReply,
    responses={200: {"content": {"text/event-stream": {}}}, **CALL_ERRORS},
)
@documented(_signature)
async def chat_completions(request: Request) -> Response:
    """The model's next turn, as one job of the verb `generate`.

    With `stream` it comes as server-sent events of chunks, which `[DONE]` ends. An error after the first of them is an
    event with `error`.
    """
    call = await taken(request, ENDPOINT)
    if not call.body.get("stream"):
        return await answered(request, ENDPOINT, call)
    chat = await off_loop(call.size > OFF_LOOP_BYTES, reread, call.body)
    pieces = await begun(stream(request, call.asked, size=call.size))
    frames = events(request.state.job_id, pieces, chat, int(time.time()))
    return sse.reply(sse.unbroken(frames, event_of))
