"""Flower behind the door of the API: who gets in, what goes on to it and what comes back."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from tasks.api_keys import HINT_CHARS, ApiKey, Scope, Tenant, hash_of, new_key
from tasks.db import Database
from tasks.service_settings import Auth
from tasks.store import api_keys
from tests.integration.api.conftest import Api, Start

NOW = datetime.now(UTC)


class Upstream:
    """A server in Flower's place: keeps what it is asked, byte by byte, and answers `answer`."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-inner: 1\r\netag: 7\r\n\r\nhi"
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.heads.append(head)
        writer.write(self.answer)
        await writer.drain()
        writer.close()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    made = Upstream()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()
    await server.wait_closed()


@pytest.fixture
def key(database: Database) -> Callable[..., str]:
    def made(*scopes: Scope) -> str:
        key = new_key()
        row = ApiKey(uuid4(), Tenant("acme", NOW), "test", key[:HINT_CHARS], frozenset(scopes), NOW)
        database.run(api_keys.create, row, hash_of(key), NOW)
        return key

    return made


async def _keyed(start_api: Start, upstream: Upstream) -> Api:
    return await start_api(auth=Auth.ON, flower_url=upstream.url, flower_auth="inner:secret")


async def test_only_a_key_for_operators_gets_in(start_api: Start, upstream: Upstream, key: Callable[..., str]) -> None:
    api = await _keyed(start_api, upstream)
    for path in ("/flower", "/flower/", "/flower/api/workers", "/flower/nonsense"):
        answer = await api.http.get(path)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Basic realm="roost", charset="UTF-8"'
        refused = await api.http.get(path, auth=("any", key(Scope.READ, Scope.WRITE)))
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "scope_missing")
    assert (await api.http.post("/flower/api/worker/shutdown/cpu@host")).status_code == 401
    assert upstream.heads == []
    ruling = key(Scope.ADMIN)
    assert (await api.http.get("/flower/tasks", auth=("any", ruling))).text == "hi"
    assert (await api.http.get("/flower/tasks", headers={"Authorization": f"Bearer {ruling}"})).text == "hi"
    assert (await api.http.get("/flower", auth=("any", ruling))).headers["location"] == "/flower/"


async def test_what_goes_on_and_what_comes_back(start_api: Start, upstream: Upstream, key: Callable[..., str]) -> None:
    api, ruling = await _keyed(start_api, upstream), key(Scope.ADMIN)
    headers = {"Cookie": "a=b", "X-Api-Key": ruling, "TE": "trailers", "X-Forwarded-For": "1.2.3.4", "Accept": "text/x"}
    answer = await api.http.get("/flower/tasks?search=a%20b&x=[1]", headers=headers)
    (head,) = upstream.heads
    lines = dict(line.lower().split(": ", 1) for line in head.strip().split("\r\n")[1:])
    assert head.startswith("GET /flower/tasks?search=a%20b&x=[1] HTTP/1.1\r\n")
    assert lines["authorization"] == f"basic {b64encode(b'inner:secret').decode().lower()}"
    assert ruling not in head
    assert set(lines) == {"authorization", "host", "accept", "accept-encoding", "user-agent", "connection"}
    assert answer.headers["etag"] == "7"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "x-inner" not in answer.headers


async def test_what_a_browser_says_of_itself_may_be_anything(start_api: Start, upstream: Upstream) -> None:
    api = await start_api(flower_url=upstream.url)
    answer = await api.http.get("/flower/tasks", headers=[(b"User-Agent", b"\xe9t\xc3\xa9")])
    assert answer.status_code == 200
    assert "user-agent: \xe9t\xc3\xa9\r\n" in upstream.heads[0]


@pytest.mark.parametrize(
    "target", ["/flower/../v1/jobs", "/flower/%2e%2e/v1/jobs", "/flower/a/..%2f..%2fv1", "/flower//x"]
)
async def test_a_path_that_leads_out_goes_nowhere(start_api: Start, upstream: Upstream, target: str) -> None:
    api = await start_api(flower_url=upstream.url)
    host, port = api.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
    assert (await reader.readline()).split()[1] == b"404"
    writer.close()
    assert upstream.heads == []


async def test_other_sites_and_large_bodies_are_refused(start_api: Start, upstream: Upstream) -> None:
    api = await start_api(flower_url=upstream.url)
    path = "/flower/api/worker/shutdown/cpu@host"
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = await api.http.post(path, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site")
    elsewhere = {"Host": "evil.example"}
    assert (await api.http.post(path, headers=elsewhere)).status_code == 401
    open_to_all = await start_api(flower_url=upstream.url, auth=Auth.OFF)
    answer = await open_to_all.http.post(path, headers=elsewhere)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site")
    assert (await api.http.post(path, content=b"x" * 70_000)).status_code == 413
    assert upstream.heads == []
    assert (await api.http.post(path, headers={"Origin": api.url})).status_code == 200


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"flower_url": "http://127.0.0.1:1"}, "does not answer"),
        ({"flower_port": 0}, "There is no Flower here"),
        ({"flower_url": "refuses"}, "ROOST_FLOWER_AUTH"),
    ],
)
async def test_a_flower_that_is_not_there(
    start_api: Start, upstream: Upstream, given: dict[str, Any], said: str
) -> None:
    upstream.answer = b"HTTP/1.1 401 No\r\nwww-authenticate: Basic\r\ncontent-length: 0\r\n\r\n"
    if given.get("flower_url") == "refuses":
        given = {"flower_url": upstream.url}
    answer = await (await start_api(**given)).http.get("/flower/tasks")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "flower_unavailable")
    assert said in answer.json()["error"]["message"]
    assert "retry-after" in answer.headers
