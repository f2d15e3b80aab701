"""Streams of events that may break off."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator

import pytest

from api.body import ClientGone
from api.compat import sse
from api.compat.dialect import Failure
from api.compat.failures import JobFailed

pytestmark = pytest.mark.anyio


async def frames(error: Exception | None) -> AsyncGenerator[bytes]:
    yield sse.data({"text": "a\nb"})
    if error is not None:
        raise error


def failed(failure: Failure) -> bytes:
    return sse.data({"error": failure.code})


async def told(error: Exception | None) -> list[bytes]:
    return [frame async for frame in sse.unbroken(frames(error), failed)]


async def test_a_frame_is_one_line_of_json() -> None:
    assert await told(None) == [b'data: {"text":"a\\nb"}\n\n']
    assert sse.event("delta", {"a": 1}) == b'event: delta\ndata: {"a":1}\n\n'


async def test_an_error_is_the_last_frame() -> None:
    assert (await told(JobFailed("model_failed", "Broken.")))[1:] == [b'data: {"error":"model_failed"}\n\n']


async def test_an_error_that_nobody_expected_is_logged_and_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert (await told(RuntimeError("secret")))[1:] == [b'data: {"error":"internal"}\n\n']
    assert "secret" in caplog.text


async def test_nobody_is_told_when_the_caller_has_left() -> None:
    assert len(await told(ClientGone())) == 1
