from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import repeat

import pytest

from tests.bench.client import Address, Connection, Disconnected, Refused, ask_json, request
from tests.bench.load import Call, closed_loop, open_loop

Serve = Callable[[bytes], AbstractAsyncContextManager[Address]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def serve() -> Serve:
    """A server that gives the same bytes to every request, or hangs up when there are none."""

    @asynccontextmanager
    async def serving(answer: bytes) -> AsyncIterator[Address]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(65_536):
                if not answer:
                    break
                writer.write(answer)
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            yield Address("127.0.0.1", server.sockets[0].getsockname()[1])

    return serving


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n" + b'{"a": 1}'
BUSY = b"HTTP/1.1 429 Too Many\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


def test_a_request_is_whole_and_counts_its_body() -> None:
    assert request("POST", "/v1/jobs", {"a": "ü"}, [("Prefer", "wait=1")]) == (
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n"
        b'Prefer: wait=1\r\n\r\n{"a":"\xc3\xbc"}'
    )


async def test_one_connection_serves_several_requests(serve: Serve) -> None:
    async with serve(OK) as address:
        connection = await Connection.open(address)
        answers = [await connection.ask(request("GET", "/")) for _ in range(3)]
        await connection.close()
    assert [(answer.status, answer.json()) for answer in answers] == [(200, {"a": 1})] * 3


async def test_a_stream_comes_in_pieces_with_their_times(serve: Serve) -> None:
    async with serve(CHUNKED) as address:
        connection = await Connection.open(address)
        pieces = await connection.pieces(request("GET", "/"))
        got = [await pieces.get() for _ in range(3)]
        await connection.close()
    assert [piece[1] for piece in got if piece] == [b"one", b"two"]
    assert got[2] is None


async def test_a_server_that_hangs_up_is_an_error(serve: Serve) -> None:
    async with serve(b"") as address:
        connection = await Connection.open(address)
        with pytest.raises(Disconnected):
            await connection.ask(request("GET", "/"))


async def test_an_unexpected_status_is_an_error_with_the_body(serve: Serve) -> None:
    async with serve(BUSY) as address:
        connection = await Connection.open(address)
        with pytest.raises(Refused, match="429"):
            await ask_json(connection, request("GET", "/"))
        await connection.close()


async def test_a_closed_loop_counts_answers_items_and_tokens(serve: Serve) -> None:
    async with serve(OK) as address:
        window = await closed_loop(address, repeat(Call(request("GET", "/"), items=2, tokens=5)), 2, 0.1, 0.02)
    assert window.answers > 0
    assert (window.items, window.tokens) == (2 * window.answers, 5 * window.answers)
    assert len(window.latencies_ms) == window.answers


async def test_refused_requests_are_counted_apart(serve: Serve) -> None:
    async with serve(BUSY) as address:
        window = await closed_loop(address, repeat(Call(request("GET", "/"))), 1, 0.05, 0.0)
    assert window.answers == 0
    assert window.refused[429] > 0


async def test_an_open_loop_keeps_its_rate(serve: Serve) -> None:
    async with serve(OK) as address:
        window = await open_loop(address, repeat(Call(request("GET", "/"))), rate=100, seconds=0.5, warmup=0.1, most=8)
    assert 40 <= window.answers <= 60
