from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import orjson
import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from api.heads import MAX_HEAD_BYTES, MAX_HEADERS, BoundedHeads

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
START = b"POST / HTTP/1.1\r\nhost: x\r\n"
CHUNKED = START + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"


async def count(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body, once it has read all of it."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        more = message["more_body"]
    answer = str(size).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]})
    await send({"type": "http.response.body", "body": answer})


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Opens connections to a server that reads requests as ours do."""
    config = Config(count, http=BoundedHeads, ws="none", lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BoundedHeads(config, state, {}), "127.0.0.1", 0)
    opened: list[asyncio.StreamWriter] = []

    async def open_one() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        opened.append(writer)
        return reader, writer

    yield open_one
    for writer in opened:
        writer.close()
    server.close()
    await server.wait_closed()
    for connection in list(state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)


async def status_of(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(10):
        return int((await reader.readline()).split()[1])


async def endless(connect: Connect, start: bytes, piece: bytes) -> int:
    """Send `piece` again and again until there is an answer; how many bytes it took."""
    reader, writer = await connect()
    writer.write(start)
    sent = 0
    answer = asyncio.create_task(status_of(reader))
    while not answer.done() and sent < 100 * MAX_HEAD_BYTES:
        writer.write(piece)
        sent += len(piece)
        await writer.drain()
        await asyncio.wait([answer], timeout=0.02)
    assert await answer == 431
    return sent


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET /", b"x" * 5000),
        (START + b"x: ", b"y" * 5000),
        (START, b"y" * 5000),
        (START, b"a: b\r\n" * 20),
        (CHUNKED + b"3;", b"y" * 5000),
        (CHUNKED + b"0\r\nx: ", b"y" * 5000),
        (CHUNKED + b"0\r\n", b"a: b\r\n" * 20),
    ],
    ids=["path", "value", "name", "headers", "chunk-size", "trailer-value", "trailers"],
)
async def test_what_does_not_end_is_refused_soon(connect: Connect, start: bytes, piece: bytes) -> None:
    assert await endless(connect, start, piece) <= 2 * MAX_HEAD_BYTES


@pytest.mark.parametrize(("headers", "status"), [(MAX_HEADERS - 2, 200), (MAX_HEADERS - 1, 431)])
async def test_headers_are_counted(connect: Connect, headers: int, status: int) -> None:
    reader, writer = await connect()
    writer.write(START + b"content-length: 0\r\n" + b"a: b\r\n" * headers + b"\r\n")
    assert await status_of(reader) == status


async def test_a_refusal_has_the_envelope_and_ends_the_connection(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(START + b"a: b\r\n" * MAX_HEADERS + b"\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert b"connection: close" in head
    assert orjson.loads(body)["error"]["code"] == "head_too_large"


async def test_a_body_may_be_larger_than_a_head(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(START + b"content-length: 1000000\r\n\r\n")
    for _ in range(10):
        writer.write(b"x" * 100_000)
        await writer.drain()
    assert await status_of(reader) == 200
    assert b"1000000" in await reader.readuntil(b"1000000")


async def test_each_request_of_a_connection_counts_for_itself(connect: Connect) -> None:
    reader, writer = await connect()
    for _ in range(4):
        writer.write(START + b"content-length: 0\r\na: " + b"b" * (MAX_HEAD_BYTES // 2) + b"\r\n\r\n")
        assert await status_of(reader) == 200
        await reader.readuntil(b"\r\n\r\n0")


async def test_what_is_no_request_gets_a_400(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(b"nonsense\r\n\r\n")
    assert await status_of(reader) == 400


def test_uvicorn_has_the_methods_that_are_built_upon() -> None:
    ours = {name for name, value in vars(BoundedHeads).items() if callable(value) and not name.startswith("_")}
    assert ours == {
        "data_received",
        "on_header",
        "on_headers_complete",
        "on_body",
        "on_message_complete",
        "send_400_response",
    }
    assert ours <= set(vars(HttpToolsProtocol))
