"""The chunks of a chat as it is written, and how calls and ends are told in OpenAI's words. Pure but for the source."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from uuid import UUID

from api.compat import sse
from api.compat.endpoints import Ended
from api.compat.failures import check_rows
from api.compat.openai.chat_request import Chat
from api.compat.openai.sampling import usage_of
from api.compat.openai.toolcalls import Call
from api.compat.openai.wording import Part, Reader, Thought
from api.texts import Delta


def finish_of(row: Mapping[str, Any], *, calls: bool) -> str:
    """Why a text has ended."""
    reason: str = row["finish_reason"]
    return "tool_calls" if calls and reason == "stop" else reason


def call_object(call: Call, mark: str) -> dict[str, Any]:
    """A call as a message holds it; `mark` tells it from all others."""
    return {"id": f"call_{mark}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


async def events(job_id: str, pieces: AsyncGenerator[Delta | Ended], chat: Chat, created: int) -> AsyncGenerator[bytes]:
    """The events of a stream: of each choice its role, its text as it comes, its calls, its end.

    Log probabilities come with a choice's end: which piece a token is in is known only then.
    """
    head = {"id": f"chatcmpl-{job_id}", "object": "chat.completion.chunk", "created": created, "model": chat.model}
    telling = [_Telling(index, chat, UUID(job_id).hex) for index in range(chat.choices)]

    def event(choices: Sequence[Mapping[str, Any]], usage: Mapping[str, int] | None = None) -> bytes:
        return sse.data({**head, "choices": choices, **({"usage": usage} if chat.tells_usage else {})})

    for one in telling:
        yield event([one.chunk({"role": "assistant", "content": "", "refusal": None})])
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Delta):
                for chunk in telling[piece.item].more(piece.text):
                    yield event([chunk])
                continue
            check_rows(piece, chat.asked.names)
            for one, row in zip(telling, piece.rows, strict=True):
                for chunk in one.end(row):
                    yield event([chunk])
            if chat.tells_usage:
                yield event([], usage_of(piece.job.usage, chat.choices))
    yield sse.DONE


class _Telling:
    """The chunks of one choice."""

    def __init__(self, index: int, chat: Chat, job: str) -> None:
        self._index = index
        self._logprobs = chat.logprobs
        self._reader = Reader(chat.calling)
        self._mark = f"{job}_{index}"
        self._calls = 0

    def chunk(self, delta: Mapping[str, Any], row: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A chunk; with the choice's row it is the last one."""
        logprobs = {"content": row["logprobs"], "refusal": None} if row is not None and self._logprobs else None
        reason = None if row is None else finish_of(row, calls=self._calls > 0)
        return {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def more(self, text: str) -> Iterator[dict[str, Any]]:
        """What can be told after this piece of the text."""
        return map(self.chunk, map(self._delta, self._reader.more(text)))

    def end(self, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """What was held back, and that it ends."""
        yield from map(self.chunk, map(self._delta, self._reader.end()))
        yield self.chunk({}, row)

    def _delta(self, part: Part) -> dict[str, Any]:
        if isinstance(part, Call):
            call = call_object(part, f"{self._mark}_{self._calls}")
            self._calls += 1
            return {"tool_calls": [{"index": self._calls - 1, **call}]}
        return {"reasoning_content" if isinstance(part, Thought) else "content": part.text}
