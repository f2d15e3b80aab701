"""Streams of chats by OpenAI's own client: they come as the text is made, apart from each other, and can be left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.acceptance.conftest import Running
from tests.acceptance.fakes import writer
from tests.acceptance.openai_clients import async_client, sync_client
from tests.acceptance.small_models import PATIENT, smollm2

SMALL = "small/smollm2"


@pytest.fixture(scope="module")
def running(start_stack: Callable[..., Running]) -> Running:
    slow = writer(step_seconds=0.02)
    broken = writer(step_seconds=0.02, faults=[{"kind": "error", "at_call": 6}])
    echo = writer(echo=True, max_new_tokens=64)
    models = {SMALL: smollm2(), "fake/echo": echo, "fake/slow": slow, "fake/broken": broken}
    return start_stack(models=models, **PATIENT)


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[OpenAI]:
    with sync_client(running.url) as made:
        yield made


@pytest.fixture
async def patient(running: Running) -> AsyncIterator[AsyncOpenAI]:
    async with async_client(running.url) as made:
        yield made


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_a_stream_of_a_real_model_is_its_reply_in_pieces(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": SMALL, "messages": user("Name a bird."), "seed": 5, "max_tokens": 10, "n": 2}
    whole = client.chat.completions.create(**asked, logprobs=True)
    texts, usage = ["", ""], None
    logprobs: list[Any] = [None, None]
    chunks = client.chat.completions.create(**asked, logprobs=True, stream=True, stream_options={"include_usage": True})
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            logprobs[choice.index] = choice.logprobs or logprobs[choice.index]
        usage = chunk.usage or usage
    assert texts == [choice.message.content for choice in whole.choices]
    for told, choice in zip(logprobs, whole.choices, strict=True):
        assert choice.logprobs is not None
        expected = [(token.token, token.logprob) for token in choice.logprobs.content or ()]
        assert [token.token for token in told.content] == [token for token, _ in expected]
        # The last bits differ with what else is computed in the same batch.
        assert [token.logprob for token in told.content] == pytest.approx([value for _, value in expected], abs=1e-3)
    assert usage == whole.usage


def test_chunks_come_as_the_text_is_made(client: OpenAI) -> None:
    chunks = list(client.chat.completions.create(
        model="fake/slow", messages=user("one two"), stream=True, stream_options={"include_usage": True}
    ))  # fmt: skip
    first, *middle, last, usage = chunks
    assert (first.choices[0].delta.role, first.choices[0].finish_reason) == ("assistant", None)
    assert len(middle) >= 4, "the text came in one piece, not as it was made"
    assert (last.choices[0].delta.content, last.choices[0].finish_reason) == (None, "length")
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.completion_tokens == 16
    assert len({chunk.id for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}


def test_a_fault_in_the_middle_of_a_stream_is_an_error_of_the_client(client: OpenAI) -> None:
    stream = client.chat.completions.create(model="fake/broken", messages=user("a b"), stream=True)
    with pytest.raises(openai.APIError) as raised:
        list(stream)
    assert raised.value.code == "model_failed"


async def test_many_chats_at_once_are_not_mixed_up(patient: AsyncOpenAI) -> None:
    async def ask(number: int) -> str | None:
        reply = await patient.chat.completions.create(
            model="fake/echo", messages=user(f"My number is {number}, and that is it."), stream=False
        )
        return reply.choices[0].message.content

    async def follow(number: int) -> str:
        stream = await patient.chat.completions.create(
            model="fake/echo", messages=user(f"My number is {number}, and that is it."), stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    numbers = range(1000, 1064)
    found = await asyncio.gather(*(ask(n) if n % 2 else follow(n) for n in numbers))
    assert found == [f"My number is {n}, and that is it." for n in numbers]


async def test_who_leaves_in_the_middle_of_a_stream_frees_the_place(running: Running, patient: AsyncOpenAI) -> None:
    stream = await patient.chat.completions.create(
        model="fake/slow", messages=user("a b c"), max_tokens=3000, stream=True
    )
    assert await _sequences(running, 1) == 1
    await stream.close()
    # 3000 tokens would take a minute.
    assert await _sequences(running, 0) == 0


async def _sequences(running: Running, wanted: int) -> int | None:
    """How many texts are being made, once it is so many, or in the end; workers tell it every other second."""
    found = None
    async with running.async_client() as http:
        try:
            async with asyncio.timeout(20):
                while found != wanted:
                    found = sum(worker["sequences"] for worker in (await http.get("/v1/residency")).json()["data"])
        except TimeoutError:
            pass
    return found
