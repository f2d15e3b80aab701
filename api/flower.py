"""Flower behind the door: its pages and its API are asked for and handed on; who may ask is for the route to say.

What passes is named here, on both ways; all else stays outside, a caller's key above all. Flower has a password of its
own (ROOST_FLOWER_AUTH), which callers never see.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote

import httpx
from starlette.responses import Response, StreamingResponse

from tasks.errors import TaskError
from tasks.service_settings import FLOWER_PREFIX
from tasks.settings import Settings

MAX_BODY_BYTES = 64 * 1024
"""Its forms are small."""

_PASSED_ON = frozenset(
    {
        *("accept", "accept-language", "content-type", "host", "if-modified-since", "if-none-match", "range"),
        *("user-agent", "x-requested-with"),
    }
)
_PASSED_BACK = frozenset(
    {
        *("cache-control", "content-disposition", "content-encoding", "content-length", "content-range"),
        *("content-type", "etag", "expires", "last-modified", "location", "vary"),
    }
)
_ADDED = {"x-frame-options": "DENY", "x-content-type-options": "nosniff", "referrer-policy": "same-origin"}
"""No other site shows these pages in a frame of its own, to have a visitor click there."""

_SEGMENT = re.compile(r"(?!\.+$)[A-Za-z0-9._~@:+,=!-]+", re.ASCII)
_QUERY = "%!$&'()*+,;=:@/?-._~[]"
_TIMES = httpx.Timeout(30.0, connect=2.0, pool=5.0)
_ROOM = httpx.Limits(max_connections=32, max_keepalive_connections=8)


class FlowerUnavailable(TaskError):
    """Flower does not answer."""

    code = "flower_unavailable"
    retryable = True


class FlowerNotSet(FlowerUnavailable):
    """Flower is not there, or takes another password, until its settings are put right."""

    retryable = False


def path_of(path: str) -> str | None:
    """A path below the prefix as Flower is asked for it, or None for one that it cannot have: it leads out, perhaps."""
    *folders, last = path.split("/")
    named = all(_SEGMENT.fullmatch(segment) for segment in folders) and (not last or _SEGMENT.fullmatch(last))
    return f"{FLOWER_PREFIX}/{quote(path, safe='/@:+,=~!')}" if named else None


class Flower:
    """Asks Flower, one for each process. It need not be there."""

    def __init__(self, settings: Settings) -> None:
        self._base = settings.flower_base
        user, _, password = settings.flower_auth.partition(":")
        self._auth = httpx.BasicAuth(user, password) if settings.flower_auth else None
        self._client: httpx.AsyncClient | None = None

    async def ask(self, method: str, path: str, query: bytes, headers: Mapping[str, str], body: bytes) -> Response:
        """What Flower says to this, as it says it. Raises FlowerUnavailable."""
        if not self._base:
            raise FlowerNotSet("There is no Flower here: set ROOST_FLOWER_URL, or ROOST_FLOWER_PORT.")
        asked = quote(query, safe=_QUERY)
        url = httpx.URL(self._base).copy_with(raw_path=(path + (f"?{asked}" if asked else "")).encode("ascii"))
        # As the bytes that came: what a browser says of itself may be anything.
        passed = [(name.encode(), value.encode("latin-1")) for name, value in headers.items() if name in _PASSED_ON]
        client = self._connected()
        request = client.build_request(method, url, headers=[*passed, (b"accept-encoding", b"identity")], content=body)
        try:
            answer = await client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise FlowerUnavailable(
                f"Flower does not answer ({type(error).__name__}); is `roost flower` up, and ROOST_FLOWER_URL right?"
            ) from None
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            await answer.aclose()
            raise FlowerNotSet(
                "Flower asks for a password of its own: give it and the API the same ROOST_FLOWER_AUTH=user:password."
            )
        kept = {name: value for name, value in answer.headers.items() if name in _PASSED_BACK}
        return StreamingResponse(_pieces(answer), answer.status_code, {**kept, **_ADDED})

    async def close(self) -> None:
        """Let go of its connections."""
        if self._client is not None:
            await self._client.aclose()

    def _connected(self) -> httpx.AsyncClient:
        # Made when it is first needed: that takes a while, and most processes never do.
        if self._client is None:
            self._client = httpx.AsyncClient(auth=self._auth, timeout=_TIMES, limits=_ROOM, trust_env=False)
        return self._client


async def _pieces(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    finally:
        await answer.aclose()
