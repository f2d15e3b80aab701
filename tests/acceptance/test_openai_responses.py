"""Responses by OpenAI's own client: whole and streamed, text, thoughts, calls and forms."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from tests.acceptance.conftest import Running
from tests.acceptance.fakes import writer
from tests.acceptance.openai_clients import async_client, sync_client
from tests.acceptance.small_models import PATIENT

SMALL = "roost/smollm2-135m-gguf"
ECHO = writer(echo=True, max_new_tokens=64, tools=True)
LOOK: Any = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    "strict": False,
}
SAID = '<think>Hm.</think>\n\nI look.\n<tool_call>{"name": "look", "arguments": {"at": "it"}}</tool_call>'


class Bird(BaseModel):
    name: Literal["owl", "wren"]
    flies: bool


@pytest.fixture(scope="module")
def running(start_stack: Callable[..., Running]) -> Running:
    broken = writer(step_seconds=0.02, faults=[{"kind": "error", "at_call": 6}])
    models = {"fake/echo": ECHO, "fake/slow": writer(step_seconds=0.02), "fake/broken": broken}
    return start_stack(models=models, **PATIENT)


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[OpenAI]:
    with sync_client(running.url) as made:
        yield made


@pytest.fixture
async def patient(running: Running) -> AsyncIterator[AsyncOpenAI]:
    async with async_client(running.url) as made:
        yield made


def test_a_response_has_its_text_and_usage(client: OpenAI) -> None:
    reply = client.responses.create(model="fake/echo", input="one two", instructions="Be brief.", metadata={"a": "b"})
    assert (reply.output_text, reply.status, reply.metadata) == ("one two", "completed", {"a": "b"})
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (4, 2)
    cut = client.responses.create(model="fake/slow", input="one two", max_output_tokens=3)
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"


def test_thoughts_words_and_calls_are_items_and_can_be_sent_back(client: OpenAI) -> None:
    question: list[Any] = [{"role": "user", "content": SAID}]
    reply = client.responses.create(model="fake/echo", input=question, tools=[LOOK])
    assert [item.type for item in reply.output] == ["reasoning", "message", "function_call"]
    assert reply.output_text == "I look."
    call = reply.output[-1]
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"at": "it"}
    answer: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "a cat"}
    conversation: list[Any] = [*question, *reply.output, answer]
    again = client.responses.create(model="fake/echo", input=conversation, tools=[LOOK])
    assert again.output_text == "a cat"


def test_a_stream_says_what_the_response_says(client: OpenAI) -> None:
    with client.responses.stream(model="fake/echo", input=SAID, tools=[LOOK]) as stream:
        words = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    whole = client.responses.create(model="fake/echo", input=SAID, tools=[LOOK])
    assert words == final.output_text == whole.output_text == "I look."
    assert [item.type for item in final.output] == [item.type for item in whole.output]


async def test_an_answer_comes_as_it_is_made(patient: AsyncOpenAI) -> None:
    stream = await patient.responses.create(model="fake/slow", input="a b", stream=True)
    types = [event.type async for event in stream]
    assert types.count("response.output_text.delta") >= 4, "the text came in one piece, not as it was made"
    assert (types[0], types[-1]) == ("response.created", "response.incomplete")


def test_a_schema_is_kept(client: OpenAI) -> None:
    reply = client.responses.parse(
        model=SMALL, input="Write a poem.", text_format=Bird, max_output_tokens=200, temperature=0
    )
    assert isinstance(reply.output_parsed, Bird)


def test_a_fault_in_the_middle_of_a_stream_is_an_error_of_the_client(client: OpenAI) -> None:
    stream = client.responses.create(model="fake/broken", input="a b", stream=True)
    with pytest.raises(openai.APIError) as raised:
        list(stream)
    assert raised.value.code == "model_failed"


def test_what_would_need_a_memory_is_refused(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as remembered:
        client.responses.create(model="fake/echo", input="a", previous_response_id="resp_1")
    assert remembered.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError) as behind:
        client.responses.create(model="fake/echo", input="a", background=True)
    assert "POST /v1/jobs" in behind.value.message
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")
