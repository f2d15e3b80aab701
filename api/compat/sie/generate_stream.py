"""The events of a text as it is written, in the peer's shape."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from api.compat import sse
from api.compat.dialect import Failure
from api.compat.endpoints import Ended
from api.compat.openai.sampling import usage_of
from api.compat.sie.errors import detail_of
from api.texts import Delta


async def events(
    job_id: str,
    pieces: AsyncGenerator[Delta | Ended],
    clock: Callable[[], float] = time.time,
) -> AsyncGenerator[bytes]:
    """Chunks of text, the end with what was used, `[DONE]`. Log probabilities come with the end."""
    seq = 0
    first: float | None = None

    def event(text: str, *, done: bool, **more: Any) -> bytes:
        return sse.data({"request_id": job_id, "seq": seq, "text_delta": text, "done": done, **more})

    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Delta):
                first = clock() if first is None else first
                yield event(piece.text, done=False)
                seq += 1
                continue
            row = piece.rows[0]
            begun = piece.job.created_at.timestamp()
            more: dict[str, Any] = {"finish_reason": row["finish_reason"], "usage": usage_of(piece.job.usage)}
            if first is not None:
                more["ttft_ms"] = round(max(0.0, first - begun) * 1000, 3)
            if "logprobs" in row:
                more["logprobs"] = row["logprobs"]
            yield event("", done=True, **more)
    yield sse.DONE


def failed_event(job_id: str) -> Callable[[Failure], bytes]:
    """The last event of a stream that breaks off, and what ends every stream."""

    def made(failure: Failure) -> bytes:
        body = {"request_id": job_id, "text_delta": "", "done": True, "finish_reason": "error"}
        return sse.data({**body, "error": detail_of(failure)}) + sse.DONE

    return made
