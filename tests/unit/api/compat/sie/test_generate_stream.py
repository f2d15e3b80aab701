from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import orjson
import pytest

from api.compat import sse
from api.compat.dialect import Failure
from api.compat.endpoints import Ended
from api.compat.sie.generate_stream import events, failed_event
from api.texts import Delta
from catalog.errors import RoostError
from tests.unit.api.compat.ends import ended


async def pieces(*all_: Delta | Ended | RoostError) -> AsyncGenerator[Delta | Ended]:
    for one in all_:
        if isinstance(one, RoostError):
            raise one
        yield one


async def told(*all_: Delta | Ended | RoostError) -> list[Any]:
    frames = sse.unbroken(events("j", pieces(*all_), lambda: 1_700_000_000.25), failed_event("j"))
    lines = b"".join([frame async for frame in frames]).decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [orjson.loads(line.removeprefix("data: ")) for line in lines[:-2]]


@pytest.mark.anyio
async def test_chunks_are_numbered_and_the_last_one_says_what_was_used() -> None:
    row = {"text": "ab", "finish_reason": "stop", "logprobs": [{"token": "ab"}]}
    end = ended("generate", [row], usage={"prompt_tokens": 1, "completion_tokens": 2})
    assert await told(Delta(0, 0, "a"), Delta(0, 1, "b"), end) == [
        {"request_id": "j", "seq": 0, "text_delta": "a", "done": False},
        {"request_id": "j", "seq": 1, "text_delta": "b", "done": False},
        {
            "request_id": "j",
            "seq": 2,
            "text_delta": "",
            "done": True,
            "finish_reason": "stop",
            "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
            "ttft_ms": 250.0,
            "logprobs": [{"token": "ab"}],
        },
    ]


@pytest.mark.anyio
async def test_a_stream_that_breaks_off_says_why() -> None:
    chunks = await told(Delta(0, 0, "a"), RoostError("It broke."))
    assert chunks[-1] == {
        "request_id": "j",
        "text_delta": "",
        "done": True,
        "finish_reason": "error",
        "error": {"code": "INFERENCE_ERROR", "message": "It broke.", "param": None},
    }


def test_an_error_has_the_peers_code() -> None:
    assert b'"code":"GATEWAY_TIMEOUT"' in failed_event("j")(Failure("still_running", "m", None, True, 504))
