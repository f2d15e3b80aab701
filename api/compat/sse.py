"""Replies that are streams of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse

from api.media import dumps

DONE = b"data: [DONE]\n\n"


def data(value: Any) -> bytes:
    """One event of JSON, on one line."""
    return b"data: " + dumps(value) + b"\n\n"


def event(name: str, value: Any) -> bytes:
    """One named event of JSON."""
    return b"event: " + name.encode() + b"\n" + data(value)


def reply(frames: AsyncIterator[bytes]) -> StreamingResponse:
    """The reply. Proxies are asked not to gather it up."""
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(frames, media_type="text/event-stream", headers=headers)
