"""A lean HTTP/1.1 client: one keep-alive connection, requests prepared as bytes, answers parsed in C.

It shares the machine's cores with what it measures, so it does as little as it can: no headers are kept, no body is
decoded unless the caller does it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import httptools
import msgpack
import orjson


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer. `at` is the wall clock (Unix seconds) when its last byte was read."""

    status: int
    body: bytes
    at: float

    def json(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.body)


class Disconnected(ConnectionError):
    """The server closed the connection before its answer was whole."""


def request(
    method: str, path: str, body: object = None, headers: Sequence[tuple[str, str]] = (), *, packed: bool = False
) -> bytes:
    """The bytes of a request, with `body` as JSON, or `packed` as msgpack."""
    content = b"" if body is None else msgpack.packb(body) if packed else orjson.dumps(body)
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if body is not None:
        lines.append(f"Content-Type: application/{'msgpack' if packed else 'json'}")
    if content or method == "POST":
        lines.append(f"Content-Length: {len(content)}")
    lines.extend(f"{name}: {value}" for name, value in headers)
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + content


class Connection(asyncio.Protocol):
    """One connection with at most one request in flight."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Answer] | None = None
        self._pieces: asyncio.Queue[tuple[float, bytes] | None] | None = None
        self._parts: list[bytes] = []
        self._gone = asyncio.Event()

    @classmethod
    async def open(cls, address: Address) -> Connection:
        """A connected connection."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, address.host, address.port)
        return connection

    async def ask(self, data: bytes) -> Answer:
        """Send a prepared request and wait for the whole answer. Raises Disconnected if the server hangs up."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._send(data)
        return await self._waiting

    async def pieces(self, data: bytes) -> asyncio.Queue[tuple[float, bytes] | None]:
        """Send a request whose answer is a stream: its pieces, each with its wall clock; None ends it."""
        self._pieces = asyncio.Queue()
        self._waiting = None
        self._send(data)
        return self._pieces

    async def close(self) -> None:
        """Hang up and wait until the socket is gone."""
        if self._transport is not None:
            self._transport.close()
            await self._gone.wait()

    def _send(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise Disconnected("not connected")
        self._transport.write(data)

    # asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Disconnected(str(exc or "closed by the server")))
        if self._pieces is not None:
            self._pieces.put_nowait(None)
        self._gone.set()

    # httptools callbacks
    def on_body(self, body: bytes) -> None:
        if self._pieces is not None:
            self._pieces.put_nowait((time.time(), body))
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        at = time.time()
        if self._pieces is not None:
            self._pieces.put_nowait(None)
            self._pieces = None
            return
        answer = Answer(self._parser.get_status_code(), b"".join(self._parts), at)
        self._parts.clear()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer)


class Refused(RuntimeError):
    """The server answered with a status that the measurement did not expect."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"HTTP {answer.status}: {answer.body[:300]!r}")


async def ask_json(connection: Connection, data: bytes, statuses: Sequence[int] = (200, 202)) -> Any:
    """The JSON of an answer. Raises Refused on any other status."""
    answer = await connection.ask(data)
    if answer.status not in statuses:
        raise Refused(answer)
    return answer.json()
