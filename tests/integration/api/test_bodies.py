"""Bodies that are too large, packed or endless: refused early, and memory stays flat."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import orjson
import psutil
import pytest

if TYPE_CHECKING:
    from tests.integration.api.conftest import Api

PATHS = ["/v1/jobs", "/v1/encode/org/model", "/v1/embeddings", "/v1/rerank", "/tei/org/model/embed"]
LIMIT = 1 << 20
MB = 1 << 20


class Raw:
    """A connection that sends bytes as they are."""

    def __init__(self, api: Api) -> None:
        self._host, self._port = urlsplit(api.url).hostname, urlsplit(api.url).port

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def head(self, *headers: str, path: str = "/v1/jobs") -> None:
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers, "", ""]
        self.writer.write("\r\n".join(lines).encode())
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        async with asyncio.timeout(10):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            body = await self.reader.readexactly(length)
        return int(head.split()[1]), body


def told(answer: tuple[int, bytes]) -> None:
    status, body = answer
    error = orjson.loads(body)["error"]
    assert (status, error["code"]) == (413, "limit_exceeded")
    assert str(LIMIT) in error["message"]


@pytest.mark.parametrize("path", PATHS)
async def test_two_gigabytes_announced_are_refused_before_a_byte_is_sent(api: Api, path: str) -> None:
    async with Raw(api) as raw:
        await raw.head(f"Content-Length: {2 << 30}", path=path)
        status, body = await raw.answer()
        assert status == 413
        assert str(LIMIT) in body.decode(), "the limit is named, in whichever envelope"


async def test_a_client_that_asks_first_is_never_told_to_go_on(api: Api) -> None:
    async with Raw(api) as raw:
        await raw.head(f"Content-Length: {2 << 30}", "Expect: 100-continue")
        told(await raw.answer())


async def test_a_body_without_a_length_is_refused_at_the_limit_and_memory_stays_flat(api: Api) -> None:
    before = psutil.Process().memory_info().rss
    async with Raw(api) as raw:
        await raw.head("Transfer-Encoding: chunked")
        piece = b"x" * 65_536
        for _ in range(2 * LIMIT // len(piece)):
            raw.writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await raw.writer.drain()
        told(await raw.answer())
        for _ in range(100 * LIMIT // len(piece)):
            raw.writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await raw.writer.drain()
    assert psutil.Process().memory_info().rss - before < 24 * MB


async def test_a_client_that_sends_all_before_it_reads_sees_the_answer(api: Api) -> None:
    response = await api.http.post("/v1/jobs", content=b"x" * (8 * MB), headers={"Content-Type": "application/json"})
    assert response.status_code == 413
    assert response.headers["connection"] == "close"
    assert str(LIMIT) in response.json()["error"]["message"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_packed_body_is_not_unpacked(api: Api, path: str) -> None:
    bomb = gzip.compress(b"x" * (64 * MB))
    assert len(bomb) < LIMIT
    response = await api.http.post(
        path, content=bomb, headers={"Content-Type": "application/json", "Content-Encoding": "gzip"}
    )
    assert response.status_code == 415
    assert "Content-Encoding" in response.text


async def test_a_multipart_body_is_refused(api: Api) -> None:
    response = await api.http.post("/v1/jobs", files={"file": b"x" * 1000})
    assert (response.status_code, response.json()["error"]["param"]) == (415, "Content-Type")
    assert (await api.http.post("/v1/jobs", files={"file": b"x" * (2 * MB)})).status_code == 413


async def test_a_hundred_thousand_tiny_items_are_refused_by_the_limit_of_items(api: Api) -> None:
    response = await api.submit(*["a"] * 100_000)
    assert response.status_code == 413
    assert response.json()["error"]["param"] == "items"
    assert "64" in response.json()["error"]["message"]


@pytest.mark.parametrize("extra", [0, 1])
async def test_the_limit_is_exact(api: Api, extra: int) -> None:
    body = orjson.dumps({"verb": "encode", "model": "org/model", "items": ["a"]})
    padded = body + b" " * (LIMIT - len(body) + extra)
    response = await api.http.post("/v1/jobs", content=padded, headers={"Content-Type": "application/json"})
    assert response.status_code == (202 if not extra else 413)


async def test_a_client_that_leaves_in_the_middle_of_its_body_does_no_harm(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    async with Raw(api) as raw:
        await raw.head("Content-Length: 1000")
        raw.writer.write(b"{")
        await raw.writer.drain()
    assert (await api.submit("cat")).status_code == 202
    assert "Traceback" not in caplog.text
