"""What both drivers share: where the server is, and how a request and a reply look to httpx."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from roost.errors import RequestRefused, RoostError
from roost.wire import Broken, Reply, Request

LOCAL = "http://127.0.0.1:8080"

_PIECE = 2**20
"""Bytes of a file that are in memory at once."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is, who asks, and for how many seconds a server that says nothing is listened to."""

    url: str
    api_key: str | None
    timeout_s: float


def address(
    url: str | None, api_key: str | None, timeout_s: float, environment: Mapping[str, str] = os.environ
) -> Address:
    """What is given, or else ROOST_URL and ROOST_API_KEY, or else the server of this machine. Raises RequestRefused."""
    found = url or environment.get("ROOST_URL") or LOCAL
    try:
        sound = httpx.URL(found).scheme in {"http", "https"} and bool(httpx.URL(found).host)
    except httpx.InvalidURL:
        sound = False
    if not sound:
        raise RequestRefused(f"The address {found[:200]!r} is none: it reads http://host:port.", param="url")
    return Address(found.rstrip("/"), api_key or environment.get("ROOST_API_KEY") or None, timeout_s)


def options_of(where: Address, connections: int) -> dict[str, Any]:
    """The arguments of either of httpx's clients."""
    headers = {"User-Agent": "roost-python"}
    if where.api_key:
        headers["Authorization"] = f"Bearer {where.api_key}"
    return {
        "base_url": where.url,
        "headers": headers,
        "limits": httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
    }


def built(client: httpx.Client | httpx.AsyncClient, request: Request, where: Address) -> httpx.Request:
    """A request for httpx. Its timeout counts from the time that the server may take on purpose.

    Raises RoostError for a client that was closed.
    """
    if client.is_closed:
        raise RoostError("The client is closed.", code="client_closed")
    headers = dict(request.headers)
    content: bytes | Iterator[bytes] | AsyncIterator[bytes] | None
    if isinstance(request.body, Path):
        # Without its length it would go in chunks, and be refused for its size at its end only.
        headers["Content-Length"] = str(request.body.stat().st_size)
        content = _pieces(request.body) if isinstance(client, httpx.Client) else _pieces_awaited(request.body)
    else:
        content = request.body
    timeout = httpx.Timeout(where.timeout_s, read=where.timeout_s + request.wait_s, pool=None)
    return client.build_request(
        request.method,
        request.path,
        params=dict(request.params) or None,
        headers=headers,
        content=content,
        timeout=timeout,
    )


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


async def _pieces_awaited(path: Path) -> AsyncIterator[bytes]:
    pieces = _pieces(path)
    while piece := await asyncio.to_thread(next, pieces, b""):
        yield piece


def now() -> float:
    """Seconds on the clock that replies are stamped with."""
    return time.monotonic()


def spread(seconds: float) -> float:
    """How long a pause of so many seconds lasts: no less, and up to a quarter more."""
    return seconds * random.uniform(1.0, 1.25)  # noqa: S311 - spreads out those who come back


@dataclass(slots=True)
class Line:
    """The way to a server, and whether anybody has ever answered at its end."""

    where: Address
    met: bool = False

    def reply(self, response: httpx.Response, body: bytes) -> Reply:
        """A reply as plain data."""
        self.met = True
        return Reply(response.status_code, response.headers, body, now())

    def broken(self, error: Exception) -> Broken:
        """Why there is no reply."""
        unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        server = str(httpx.URL(self.where.url).copy_with(userinfo=b""))
        return Broken(str(error) or type(error).__name__, now(), unsent, server, unmet=not self.met)

    def ended(self) -> Broken:
        """The end of a stream, which is a connection that broke: whole streams end by themselves."""
        return Broken("the stream ended", now())
