"""POST /v1/completions by OpenAI's official client: a small language model with real weights, and one without any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from tests.acceptance.fakes import writer
from tests.acceptance.openai_clients import Both, async_client

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]

SMOLLM = "roost/smollm2-135m-gguf"
PROMPT = "The capital of France is"
BROKEN = writer(step_seconds=0.001, faults=[{"kind": "error", "when_text": "BROKEN"}])


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(models={"org/writer": writer(), "org/broken": BROKEN})


@pytest.fixture(scope="module")
def clients(stack: Any) -> Iterator[Both]:
    both = Both(stack.url)
    yield both
    both.close()


def completed(**fields: Any) -> Callable[[Any], Any]:
    return lambda c: c.completions.create(**fields)


def native(stack: Any, prompt: str, **options: Any) -> Any:
    body = {"verb": "generate", "model": SMOLLM, "items": [prompt], "options": {"raw": True, **options}}
    return stack.client.post("/v1/jobs", json=body, headers={"Prefer": "wait=60"}).json()


def test_a_text_goes_on_as_the_native_api_has_it(clients: Both, stack: Any) -> None:
    job = native(stack, PROMPT, max_tokens=8)
    for reply in clients.call(completed(model=SMOLLM, prompt=PROMPT, max_tokens=8, temperature=0, user="me")):
        assert reply.choices[0].text == job["result"]["items"][0]["text"]
        assert (reply.choices[0].index, reply.choices[0].finish_reason) == (0, "length")
        assert (reply.object, reply.model) == ("text_completion", SMOLLM)
        assert reply.usage.prompt_tokens == job["usage"]["prompt_tokens"]
        assert reply.usage.completion_tokens == job["usage"]["completion_tokens"]


def test_a_text_has_sixteen_tokens_where_none_are_asked_for(clients: Both) -> None:
    reply = clients.sync.completions.create(model="org/writer", prompt="a b c")
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (3, 16)


def test_choices_of_a_seed_differ_and_come_again(clients: Both) -> None:
    first, second = clients.call(completed(model="org/writer", prompt=PROMPT, max_tokens=12, n=3, seed=7))
    texts = [choice.text for choice in first.choices]
    assert len(set(texts)) == 3
    assert [choice.text for choice in second.choices] == texts
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    (real, _) = clients.call(completed(model=SMOLLM, prompt=PROMPT, max_tokens=12, n=3, seed=7, temperature=1.2))
    assert len({choice.text for choice in real.choices}) == 3


def test_choices_of_several_prompts_come_prompt_by_prompt(clients: Both) -> None:
    prompts = ["one two", "three four five"]
    asked: dict[str, Any] = {"model": "org/writer", "prompt": prompts, "n": 2, "max_tokens": 3, "temperature": 0}
    for reply in clients.call(completed(**asked)):
        texts = [choice.text for choice in reply.choices]
        assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
        assert texts[0] == texts[1] != texts[2] == texts[3]
        assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (5, 12)


def test_an_echo_comes_before_the_text(clients: Both) -> None:
    plain, echoed = (
        clients.sync.completions.create(model="org/writer", prompt="one two", echo=echo) for echo in (False, True)
    )
    assert echoed.choices[0].text == "one two" + plain.choices[0].text


def test_log_probabilities_say_how_likely_each_token_was(clients: Both) -> None:
    for reply in clients.call(completed(model=SMOLLM, prompt=PROMPT, max_tokens=4, temperature=0, logprobs=2)):
        choice = reply.choices[0]
        told = choice.logprobs
        assert "".join(told.tokens) == choice.text
        for place, token in zip(told.text_offset, told.tokens, strict=True):
            assert choice.text[place:].startswith(token)
        for token, logprob, likeliest in zip(told.tokens, told.token_logprobs, told.top_logprobs, strict=True):
            # The likeliest token was taken, so it is the first of the likeliest.
            assert max(likeliest, key=likeliest.__getitem__) == token
            assert likeliest[token] == logprob <= 0
            assert len(likeliest) == 2


def test_a_stop_ends_a_text_and_is_not_in_it(clients: Both) -> None:
    whole = clients.sync.completions.create(model=SMOLLM, prompt=PROMPT, max_tokens=8, temperature=0).choices[0].text
    stop = whole[3:6]
    reply = clients.sync.completions.create(model=SMOLLM, prompt=PROMPT, max_tokens=8, temperature=0, stop=[stop])
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == (whole[: whole.index(stop)], "stop")


def test_a_stream_tells_the_same_texts_and_its_usage(clients: Both, stack: Any) -> None:
    asked: dict[str, Any] = {"model": "org/writer", "prompt": ["one", "two three"], "n": 2, "max_tokens": 5}
    whole = clients.sync.completions.create(**asked)
    options: Any = {"include_usage": True}
    chunks = list(clients.sync.completions.create(**asked, stream=True, stream_options=options))

    async def streamed() -> list[Any]:
        async with async_client(stack.url) as client:
            return [
                chunk async for chunk in await client.completions.create(**asked, stream=True, stream_options=options)
            ]

    for told in (chunks, asyncio.run(streamed())):
        texts = [""] * 4
        for chunk in told[:-1]:
            assert chunk.usage is None
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        assert texts == [choice.text for choice in whole.choices]
        assert [c.finish_reason for chunk in told for c in chunk.choices if c.finish_reason] == ["length"] * 4
        assert told[-1].choices == []
        assert told[-1].usage == whole.usage


def test_what_is_refused_names_its_field(clients: Both) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"temperature": 3}, "temperature"),
        ({"prompt": ["a", ""]}, "prompt[1]"),
        ({"prompt": [1, 2, 3]}, "prompt"),
        ({"logit_bias": {"word": 1}}, "logit_bias"),
        ({"max_tokens": 5000}, "max_tokens"),
        ({"extra_body": {"max_token": 5}}, "max_token"),
    ]
    for fields, param in refused:
        asked = {"model": "org/writer", "prompt": "a", **fields}
        for error in clients.refused(completed(**asked)):
            assert error.param == param


def test_a_refused_stream_has_its_status(clients: Both) -> None:
    with pytest.raises(openai.NotFoundError):
        clients.sync.completions.create(model="org/nobody", prompt="a", stream=True)
    with pytest.raises(openai.BadRequestError):
        clients.sync.completions.create(model="org/writer", prompt=" ", stream=True)


def test_a_text_that_fails_is_an_error_in_a_stream_too(clients: Both) -> None:
    asked: dict[str, Any] = {"model": "org/broken", "prompt": ["one", "BROKEN"], "max_tokens": 4}
    for error in clients.refused(completed(**asked), openai.InternalServerError):
        assert error.type == "server_error"
    with pytest.raises(openai.APIError):
        list(clients.sync.completions.create(**asked, stream=True))


def test_literals_of_control_tokens_are_text_or_refused_by_name(clients: Both) -> None:
    for literal in ("[CLS] [SEP] [MASK]", "</s>"):
        reply = clients.sync.completions.create(model=SMOLLM, prompt=literal, max_tokens=2, temperature=0)
        assert reply.usage is not None
        assert reply.usage.prompt_tokens > 1
    # llama.cpp cannot take its own control tokens as text; they never come through as what they spell.
    for literal in ("<|endoftext|>", "<|im_end|>"):
        for error in clients.refused(completed(model=SMOLLM, prompt=literal)):
            assert error.param == "prompt"
            assert literal in error.message


def test_a_model_that_writes_nothing_is_the_field_at_fault(clients: Both) -> None:
    for error in clients.refused(completed(model="roost/fake", prompt="a")):
        assert error.param == "model"
