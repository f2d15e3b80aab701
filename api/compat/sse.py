"""Replies that are streams of server-sent events."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from starlette.responses import StreamingResponse

from api.body import ClientGone
from api.compat.dialect import UNEXPECTED, Failure
from api.media import dumps
from catalog.errors import RoostError

log = logging.getLogger(__name__)

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


async def unbroken(frames: AsyncGenerator[bytes], failed: Callable[[Failure], bytes]) -> AsyncGenerator[bytes]:
    """The frames, and if they break off one more that says why: a reply that has begun has no status left for it."""
    try:
        async with aclosing(frames):
            async for frame in frames:
                yield frame
    except ClientGone:
        return
    except RoostError as error:
        yield failed(Failure.of(error))
    except Exception:
        log.exception("unexpected error in a stream")
        yield failed(UNEXPECTED)
