"""POST /v1/responses: a conversation goes on, in OpenAI's newer words. Nothing is remembered from one to the next."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from itertools import count
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.body import OFF_LOOP_BYTES
from api.compat import sse
from api.compat.calls import answered, begun, stream, taken
from api.compat.dialect import Failure, route_class
from api.compat.endpoints import Asked, Ended, Endpoint
from api.compat.failures import check_rows
from api.compat.openai.errors import CALL_ERRORS, body_of, render
from api.compat.openai.responses_output import Writer, status_of
from api.compat.openai.responses_request import Responding, ResponsesRequest, reread, responding
from api.compat.openai.sampling import TEMPERATURE
from api.door import off_loop
from api.route import documented
from api.schemas import Reply
from api.texts import Delta

router = APIRouter(route_class=route_class(render), tags=["openai"])


class InputDetails(Reply):
    """Nothing is cached from one prompt to the next."""

    cached_tokens: Literal[0]
    cache_write_tokens: Literal[0]


class OutputDetails(Reply):
    """Thoughts are not counted apart."""

    reasoning_tokens: Literal[0]


class ResponseUsage(Reply):
    """Tokens read and made."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class IncompleteDetails(Reply):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class ResponseReply(Reply):
    """A response. What was asked for comes back with it."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["in_progress", "completed", "incomplete"]
    background: Literal[False]
    error: None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: Annotated[
        list[dict[str, Any]], Field(description="Items of the types `message`, `reasoning` and `function_call`")
    ]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: dict[str, str | None]
    store: Literal[False]
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, str]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    user: str | None


def to_job(body: Mapping[str, Any]) -> Asked:
    """The generate job of a body."""
    return responding(body).asked


def to_reply(ended: Ended, body: Mapping[str, Any]) -> dict[str, Any]:
    """The response of the job, or the error of its item."""
    asked = reread(body)
    check_rows(ended, asked.asked.names)
    (row,) = ended.rows
    writer = Writer(ended.job.id.hex, asked.calling)
    for _ in (*writer.more(row["text"]), *writer.end(row)):
        pass
    head = _head(str(ended.job.id), int(ended.job.created_at.timestamp()), asked)
    return {**head, **_end(ended, row), "output": writer.items}


def _head(job_id: str, created: int, asked: Responding) -> dict[str, Any]:
    """A response of which nothing is written yet."""
    request = asked.request
    form = None if request.text is None else request.text.format
    effort = None if request.reasoning is None else request.reasoning.effort
    choice = request.tool_choice or "auto"
    return {
        "id": f"resp_{job_id}",
        "object": "response",
        "created_at": created,
        "completed_at": None,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata or {},
        "model": request.model,
        "output": [],
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": effort, "summary": None},
        "store": False,
        "temperature": TEMPERATURE if request.temperature is None else request.temperature,
        "text": {"format": {"type": "text"} if form is None else form},
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
        "tools": [tool.model_dump() for tool in request.tools or ()],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": request.user,
    }


def _end(ended: Ended, row: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a response at its end."""
    status, usage, finished = status_of(row), ended.job.usage or {}, ended.job.finished_at
    read, made = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
    return {
        "model": ended.job.model,
        "status": status,
        "completed_at": int(finished.timestamp()) if finished is not None and status == "completed" else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + made,
        },
    }


class Events:
    """The events of one stream, numbered."""

    def __init__(self) -> None:
        self._numbers = count()

    def frame(self, name: str, fields: Mapping[str, Any]) -> bytes:
        """One event."""
        return sse.event(name, {"type": name, "sequence_number": next(self._numbers), **fields})

    def failed(self, failure: Failure) -> bytes:
        """The last event of a stream that breaks off; its `error` has OpenAI's client raise it."""
        body = body_of(failure)
        error = body["error"]
        return self.frame("error", {**{name: error[name] for name in ("code", "message", "param")}, **body})

    async def told(
        self, job_id: str, pieces: AsyncGenerator[Delta | Ended], asked: Responding, created: int
    ) -> AsyncGenerator[bytes]:
        """All of them, from `response.created` to `response.completed` or `response.incomplete`."""
        head = _head(job_id, created, asked)
        writer = Writer(job_id.replace("-", ""), asked.calling)
        yield self.frame("response.created", {"response": head})
        yield self.frame("response.in_progress", {"response": head})
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Delta):
                    for name, fields in writer.more(piece.text):
                        yield self.frame(name, fields)
                    continue
                check_rows(piece, asked.asked.names)
                (row,) = piece.rows
                for name, fields in writer.end(row):
                    yield self.frame(name, fields)
                whole = {**head, **_end(piece, row), "output": writer.items}
                yield self.frame(f"response.{whole['status']}", {"response": whole})


ENDPOINT = Endpoint("/v1/responses", to_job, to_reply)


def _signature(body: ResponsesRequest) -> None: ...


@router.post(
    ENDPOINT.path,
    summary="Go on with a conversation, as OpenAI's Responses do",
    response_model=ResponseReply,
    responses={200: {"content": {"text/event-stream": {}}}, **CALL_ERRORS},
)
@documented(_signature)
async def responses(request: Request) -> Response:
    """The model's next turn, as one job of the verb `generate`. Nothing is remembered: send the whole conversation.

    With `stream` it comes as server-sent events. An error after the first of them is an event `error`.
    """
    call = await taken(request, ENDPOINT)
    if not call.body.get("stream"):
        return await answered(request, ENDPOINT, call)
    asked = await off_loop(call.size > OFF_LOOP_BYTES, reread, call.body)
    pieces, events = await begun(stream(request, call.asked, size=call.size)), Events()
    frames = events.told(request.state.job_id, pieces, asked, int(time.time()))
    return sse.reply(sse.unbroken(frames, events.failed))
