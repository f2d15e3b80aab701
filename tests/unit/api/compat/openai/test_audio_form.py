"""The form of an audio call."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Message

from api.compat.openai.audio_form import Upload, upload_of
from tasks.errors import InvalidRequest

pytestmark = pytest.mark.anyio


async def read(data: dict[str, Any], files: list[tuple[str, tuple[str, bytes]]]) -> Upload:
    made = httpx.Request("POST", "http://x", data=data, files=files)
    body = made.read()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", made.headers["content-type"].encode())]
    return await upload_of(Request({"type": "http", "method": "POST", "headers": headers}, receive), 10_000)


FILE = [("file", ("a.flac", bytes(range(256))))]


async def test_a_form_has_one_file_and_texts_beside_it() -> None:
    found = await read({"model": "org/ear", "timestamp_granularities[]": ["word", "segment"], "prompt": ""}, FILE)
    assert (found.data, found.name) == (bytes(range(256)), "a.flac")
    assert found.fields == {"model": "org/ear", "timestamp_granularities": ["word", "segment"]}


@pytest.mark.parametrize(
    ("data", "files", "param"),
    [
        ({"model": "a"}, [("flie", ("a", b""))], "file"),
        ({"model": "a"}, [*FILE, *FILE], "file"),
        ({"model": ["a", "b"]}, FILE, "model"),
        ({"model": b"\xff"}, FILE, "model"),
    ],
)
async def test_what_is_wrong_with_a_form_is_named(data: dict[str, Any], files: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        await read(data, files)
    assert raised.value.param == param
