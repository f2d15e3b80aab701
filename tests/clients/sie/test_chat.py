"""The peer's own client on the routes that it shares with OpenAI's: chats, their streams, responses."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from sie_sdk import SIEAsyncClient, SIEClient
from sie_sdk.client.errors import RequestError

WRITER = "small/writer"
MESSAGES = [{"role": "user", "content": "Name a bird."}]
OPTIONS = {"max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def said(url: str) -> str:
    """What the route answers whoever asks."""
    body = {"model": WRITER, "messages": MESSAGES, **OPTIONS}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=90)
    text: str = answer.raise_for_status().json()["choices"][0]["message"]["content"]
    return text


def test_a_chat_is_answered(url: str, said: str) -> None:
    with SIEClient(url) as client:
        found = client.chat_completions(WRITER, MESSAGES, **OPTIONS)
    assert found["choices"][0]["message"]["content"] == said
    assert found["usage"]["completion_tokens"] == 8


def test_a_chat_is_answered_asynchronously(url: str, said: str) -> None:
    async def ask() -> str:
        async with SIEAsyncClient(url) as client:
            found = await client.chat_completions(WRITER, MESSAGES, **OPTIONS)
            return str(found["choices"][0]["message"]["content"])

    assert asyncio.run(ask()) == said


def test_a_chat_is_streamed(url: str, said: str) -> None:
    with SIEClient(url) as client:
        chunks = list(client.stream_chat_completions(WRITER, MESSAGES, **OPTIONS))
    deltas = [choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]]
    assert "".join(deltas) == said


def test_a_chat_is_streamed_asynchronously(url: str, said: str) -> None:
    async def ask() -> str:
        async with SIEAsyncClient(url) as client:
            chunks = [chunk async for chunk in client.stream_chat_completions(WRITER, MESSAGES, **OPTIONS)]
        return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])

    assert asyncio.run(ask()) == said


def test_an_answer_keeps_to_a_format(url: str) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "number", "schema": schema}}
    with SIEClient(url) as client:
        found = client.chat_completions(WRITER, MESSAGES, max_tokens=30, response_format=form)
    assert json.loads(found["choices"][0]["message"]["content"])["n"] in (1, 2)


def test_a_response_is_made(url: str) -> None:
    body = {"model": WRITER, "input": "Name a bird.", "max_output_tokens": 8, "temperature": 0}
    answer = httpx.post(f"{url}/v1/responses", json=body, timeout=90).raise_for_status().json()
    with SIEClient(url) as client:
        found = client.responses(WRITER, "Name a bird.", max_output_tokens=8, temperature=0)
    assert found["output"][0]["content"] == answer["output"][0]["content"]
    assert found["usage"]["output_tokens"] == 8


def test_an_unknown_model_is_refused_with_near_names(url: str) -> None:
    with SIEClient(url) as client, pytest.raises(RequestError, match="Did you mean") as caught:
        client.chat_completions("small/writr", MESSAGES, **OPTIONS)
    assert caught.value.status_code == 404
