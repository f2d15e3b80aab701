"""Reading a request's body, JSON or msgpack: bounded before and while it is read, then decoded strictly.

A body that is too large is refused at its Content-Length, or at the first chunk beyond the limit; what the client still
sends is thrown away for a while, so that it gets to see the answer, and then the connection is closed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgpack
import orjson
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from api.errors import InvalidJson, InvalidMsgpack, UnsupportedMediaType, error_response
from api.media import MSGPACK_NAMES, Media
from api.values import SMALL_BYTES, check_values, no_extension, unpack
from tasks.errors import LimitExceeded, TaskError
from tasks.request import path

STALL_S = 30.0
"""A body of which no byte comes for so long is given up."""

LINGER_S = 10.0
LINGER_BYTES = 256 * 2**20
OFF_LOOP_BYTES = SMALL_BYTES
"""A refused body above this size is searched for its fault in a thread."""


class BodyTooLarge(LimitExceeded):
    """The body is larger than the server takes."""


class BodyTimeout(TaskError):
    """No byte of the body came for too long; send the request again."""

    code = "body_timeout"
    retryable = True


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body and how many bytes it came in."""

    value: object
    size: int


async def read_body(request: Request, limit: int) -> Body:
    """The decoded body. Raises LimitExceeded, BodyTimeout, UnsupportedMediaType, InvalidJson or InvalidMsgpack."""
    headers = request.headers
    check_length(headers, limit)
    media = check_media(headers)
    body = await read(request.receive, limit)
    try:
        return Body(loads(body) if media is Media.JSON else unpack(body), len(body))
    except (ValueError, msgpack.UnpackException) as error:
        if len(body) > OFF_LOOP_BYTES:
            raise await asyncio.to_thread(_fault_of, body, error) from None
        raise _fault_of(body, error) from None


def loads(body: bytes) -> Any:
    """A JSON body. Raises LimitExceeded or orjson's error."""
    check_values(body)
    if len(body) <= OFF_LOOP_BYTES:
        return orjson.loads(body)
    # The collector looks through all again and again while many lists are made, which takes most of the time.
    gc.disable()
    try:
        return orjson.loads(body)
    finally:
        gc.enable()


def _fault_of(body: bytes, error: Exception) -> TaskError:
    return diagnose(body, error) if isinstance(error, orjson.JSONDecodeError) else diagnose_msgpack(body, error)


def check_length(headers: Headers, limit: int) -> None:
    """Refuse a body by its announced length. Raises BodyTooLarge."""
    announced = headers.get("content-length")
    if announced is not None and announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)


def check_media(headers: Headers) -> Media:
    """In which form the body is. Refuses any other before reading it. Raises UnsupportedMediaType."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMediaType(
            f"Content-Encoding {encoding[:40]!r} is not taken; send the body as it is.", param="Content-Encoding"
        )
    media = headers.get("content-type")
    if media is None or media == "application/json":
        return Media.JSON
    kind = media.partition(";")[0].strip().lower()
    if kind in MSGPACK_NAMES:
        return Media.MSGPACK
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMediaType(
            f"Content-Type {kind[:80]!r} is not taken; send application/json or application/msgpack.",
            param="Content-Type",
        )
    return Media.JSON


async def read(receive: Receive, limit: int, stall_s: float = STALL_S) -> bytes:
    """The body, at most `limit` bytes of it in memory. Raises as `pieces` does."""
    return b"".join([piece async for piece in pieces(receive, limit, stall_s)])


async def pieces(receive: Receive, limit: int, stall_s: float = STALL_S) -> AsyncIterator[bytes]:
    """The body as it comes.

    Raises BodyTooLarge, BodyTimeout when nothing comes for `stall_s`, or ClientGone if the client left.
    """
    size, more = 0, True
    while more:
        message = await _next(receive, stall_s)
        piece = _bytes(message)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        yield piece
        more = message.get("more_body", False)


async def _next(receive: Receive, stall_s: float) -> Message:
    try:
        async with asyncio.timeout(stall_s):
            return await receive()
    except TimeoutError:
        raise BodyTimeout(
            f"No byte of the body came for {stall_s:g} s; send the request again.", param="body"
        ) from None


class ClientGone(Exception):
    """The client closed the connection; any answer goes nowhere."""


def _bytes(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = message.get("body", b"")
    return body


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The body is larger than {limit} bytes, the limit ROOST_MAX_BODY_BYTES of this server; send several jobs.",
        param="body",
    )


class Refusal(Response):
    """The reply to a body that is not read to its end.

    The whole answer goes out at once; then what still comes in is dropped, for a bounded time and size, because a
    connection closed with unread bytes is reset and its client never sees the answer.
    """

    def __init__(self, error: BodyTooLarge | BodyTimeout, plain: Response | None = None) -> None:
        plain = plain or error_response(error)
        kept = {name: value for name, value in plain.headers.items() if name != "content-length"}
        super().__init__(plain.body, status_code=plain.status_code, headers={**kept, "connection": "close"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, then throw away what still comes."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await _drain(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
    end, dropped = time.monotonic() + LINGER_S, 0
    try:
        async with asyncio.timeout(LINGER_S):
            while dropped < LINGER_BYTES and time.monotonic() < end:
                message = await receive()
                dropped += len(_bytes(message))
                if not message.get("more_body", False):
                    return
    except (TimeoutError, ClientGone):
        return


async def on_unread(request: Request, error: BodyTooLarge | BodyTimeout) -> Response:
    """The exception handler of BodyTooLarge and BodyTimeout."""
    return Refusal(error)


class _NotANumber:
    """Stands for NaN or Infinity in a body that is only read to find it."""


def diagnose_msgpack(body: bytes, error: Exception) -> InvalidMsgpack:
    """What is wrong with a msgpack body; names the field where a text in it is no UTF-8."""
    if isinstance(error, UnicodeDecodeError):
        try:
            found = _find(msgpack.unpackb(body, unicode_errors="surrogateescape", ext_hook=no_extension), ())
        except (ValueError, RecursionError, msgpack.UnpackException):
            found = None
        if found is not None:
            param = (path(found[0]) or "body")[:200]
            return InvalidMsgpack(f"{param!r} {found[1]}.", param=param)
    said = _SAID.get(type(error).__name__, str(error)[:100] or "it cannot be read")
    return InvalidMsgpack(f"The body is not valid msgpack: {said}.", param="body")


_SAID = {"ExtraData": "there is more after its end", "StackError": "it is nested too deep"}


def diagnose(body: bytes, error: orjson.JSONDecodeError) -> InvalidJson:
    """What is wrong with a body that the strict decoder refused; names the field if a tolerant one can read it."""
    plain = InvalidJson(f"The body is not valid JSON: {error.msg} at byte {error.pos}.", param="body")
    try:
        text = body.decode("utf-8", "surrogateescape")
        found = _find(json.loads(text, parse_constant=lambda _: _NotANumber(), parse_float=_finite), ())
    except (ValueError, RecursionError):
        return plain
    if found is None:
        return plain
    where, what = found
    param = path(where) or "body"
    return InvalidJson(f"{param[:200]!r} {what}.", param=param[:200])


def _finite(literal: str) -> object:
    value = float(literal)
    return value if abs(value) != float("inf") else _NotANumber()


def _find(value: Any, where: tuple[str | int, ...]) -> tuple[tuple[str | int, ...], str] | None:
    """The first value that JSON does not allow or that no text can hold, with its place."""
    if isinstance(value, _NotANumber):
        return where, "must be a finite number; JSON has no NaN and no Infinity"
    if isinstance(value, str):
        return None if _sound(value) else (where, "holds half of a surrogate pair, or bytes that are not UTF-8")
    if isinstance(value, dict):
        for name, inner in value.items():
            if not _sound(name):
                return where, "has a field whose name is not valid text"
            if found := _find(inner, (*where, name)):
                return found
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            if found := _find(inner, (*where, index)):
                return found
    return None


def _sound(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


async def on_gone(request: Request, error: ClientGone) -> Response:
    """The exception handler of ClientGone: the answer goes nowhere, and is counted under a status of its own."""
    return Response(status_code=499)
