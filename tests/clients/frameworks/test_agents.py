"""An agent framework, Pydantic AI, with its setting for OpenAI: OPENAI_BASE_URL."""

from __future__ import annotations

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.settings import ModelSettings


@pytest.fixture
def model(writer: str) -> OpenAIChatModel:
    return OpenAIChatModel(writer, settings=ModelSettings(temperature=0, max_tokens=48, seed=1))


async def test_an_agent_answers_and_goes_on(model: OpenAIChatModel) -> None:
    agent = Agent(model, instructions="You are terse.")
    first = await agent.run("Name three colours.")
    assert first.output.strip()
    assert first.usage.output_tokens > 0
    second = await agent.run("And one more.", message_history=first.all_messages())
    assert second.output.strip()
    assert second.usage.input_tokens > first.usage.input_tokens


async def test_an_agent_streams(model: OpenAIChatModel) -> None:
    async with Agent(model).run_stream("Name three colours.") as run:
        pieces = [piece async for piece in run.stream_text(delta=True, debounce_by=None)]
    assert len(pieces) > 1
    assert "".join(pieces).strip()


async def test_an_agent_gives_a_typed_answer(model: OpenAIChatModel, verdict: type[BaseModel]) -> None:
    agent = Agent(model, output_type=NativeOutput(verdict))
    assert isinstance((await agent.run("A pipe burst. Decide the claim.")).output, verdict)
