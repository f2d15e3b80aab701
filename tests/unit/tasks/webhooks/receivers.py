"""Servers on this machine's loopback that stand for a public host and for the inside."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address

from tasks.webhooks.addresses import Address

PUBLIC = "127.0.0.2"
"""Stands for the outside: tests allow it, and nothing else of loopback."""

INSIDE = "127.0.0.1"

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Receiver:
    """What came to a server, and where it is."""

    port: int = 0
    requests: list[str] = field(default_factory=list)
    connections: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def receiving(
    answer: Answer,
    host: str = PUBLIC,
    port: int = 0,
    *,
    trust: ssl.SSLContext | None = None,
    reads: bool = True,
) -> AsyncIterator[Receiver]:
    """A server that reads a request's head, unless it speaks first, and gives this answer.

    `left` is set when its client has gone.
    """
    it = Receiver()
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        it.connections += 1
        it.came.set()
        try:
            if reads:
                it.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            await answer(writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            it.left.set()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.get_running_loop().create_task(serve(reader, writer)))

    server = await asyncio.start_server(begin, host, port, ssl=trust)
    it.port = server.sockets[0].getsockname()[1]
    try:
        yield it
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def says(head: str, body: bytes = b"", *, length: bool = True) -> Answer:
    """An answer with this status and headers."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        more = f"Content-Length: {len(body)}\r\n" if length else ""
        writer.write(f"HTTP/1.1 {head}\r\n{more}\r\n".encode() + body)
        await writer.drain()

    return answer


def endless(head: bytes, piece: bytes) -> Answer:
    """An answer that goes on until its client leaves."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()

    return answer


async def stalls(writer: asyncio.StreamWriter) -> None:
    """Half a header, and nothing more."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Le")
    await asyncio.Event().wait()


@dataclass
class Names:
    """A resolver that says in turn what it was told, the last of it again and again; and how often it was asked."""

    answers: list[list[str]]
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str) -> list[Address]:
        self.asked.append(host)
        said = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if not said:
            raise OSError("no such name")
        return [ip_address(one) for one in said]
