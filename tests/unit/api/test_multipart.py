"""Forms, read as they come."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Message

from api.body import BodyTooLarge, ClientGone
from api.errors import UnsupportedMediaType
from api.multipart import MAX_PARTS, Part, parts
from tasks.errors import InvalidRequest, LimitExceeded

pytestmark = pytest.mark.anyio

LIMIT = 10_000
FILE = bytes(range(256)) + b"\r\n--not the boundary\r\n"


def request(content_type: str, pieces: Sequence[bytes], **headers: str) -> Request:
    waiting = [*pieces]

    async def receive() -> Message:
        if not waiting:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": waiting.pop(0), "more_body": True if waiting else bool(headers)}

    sent = {"content-type": content_type, **headers}
    raw = [(name.encode(), value.encode()) for name, value in sent.items()]
    return Request({"type": "http", "method": "POST", "headers": raw}, receive)


def form(step: int) -> Request:
    """A form as a client makes it, in pieces of so many bytes."""
    made = httpx.Request(
        "POST", "http://x", data={"model": "org/ear", "language": "de"}, files={"file": ("a.wav", FILE, "audio/wav")}
    )
    body = made.read()
    return request(made.headers["content-type"], [body[at : at + step] for at in range(0, len(body), step)])


async def read(given: Request, limit: int = LIMIT) -> list[tuple[Part, bytes]]:
    found: list[tuple[Part, bytes]] = []
    async for piece in parts(given, limit):
        if isinstance(piece, Part):
            found.append((piece, b""))
        else:
            found[-1] = (found[-1][0], found[-1][1] + piece)
    return found


@pytest.mark.parametrize("step", [1, 7, 100_000])
async def test_a_form_is_the_same_however_its_bytes_come(step: int) -> None:
    assert await read(form(step)) == [
        (Part("model"), b"org/ear"),
        (Part("language"), b"de"),
        (Part("file", "a.wav", "audio/wav"), FILE),
    ]


async def test_a_form_beyond_the_limit_is_refused_while_it_comes() -> None:
    with pytest.raises(BodyTooLarge):
        await read(form(50), limit=100)


@pytest.mark.parametrize(
    "content_type", ["application/json", "multipart/form-data", "multipart/form-data; boundary=" + "x" * 71, ""]
)
async def test_anything_but_a_form_is_refused(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType):
        await read(request(content_type, [b""]))


@pytest.mark.parametrize(
    "body",
    [
        b"no boundary at all",
        b"--b\r\nContent-Disposition: form-data; name=a\r\n\r\nhalf",
        b"--b\r\nContent-Disposition: attachment\r\n\r\n1\r\n--b--\r\n",
        b"--b\r\nContent-Type: text/plain\r\n\r\n1\r\n--b--\r\n",
        b"",
    ],
)
async def test_a_broken_form_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        await read(request("multipart/form-data; boundary=b", [body]))


async def test_a_form_has_so_many_parts_and_no_more() -> None:
    part = b"--b\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n"
    sent = request("multipart/form-data; boundary=b", [part * (MAX_PARTS + 1) + b"--b--\r\n"])
    with pytest.raises(LimitExceeded):
        await read(sent, limit=10**6)


async def test_a_client_that_leaves_in_the_middle_is_noticed() -> None:
    with pytest.raises(ClientGone):
        await read(request("multipart/form-data; boundary=b", [b"--b\r\n"], more="yes"))
