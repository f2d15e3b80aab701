"""From a completions body to a generate job, and back to choices, at once or in a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import orjson
import pytest

from api.compat.endpoints import Ended
from api.compat.failures import JobFailed, renamed
from api.compat.openai.completions import CompletionsReply, events, to_job, to_reply
from api.texts import Delta
from catalog.errors import InvalidOption, RoostError
from catalog.options.generate import GenerateOptions
from tasks.request import parse_request
from tests.unit.api.compat.ends import ID, ended

USAGE = {"items": 4, "tokens": 60, "prompt_tokens": 40, "completion_tokens": 20}


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "org/writer", "prompt": ["one", "two"], **fields}


def found(count: int = 2, **fields: Any) -> Ended:
    rows = [{"text": f" text {i}", "finish_reason": "stop", "tokens": 15, **fields} for i in range(count)]
    return ended("generate", rows, model="org/writer", usage=USAGE)


def test_prompts_go_in_as_they_are_with_the_defaults_of_openai() -> None:
    request = parse_request(to_job(body(user="me")).raw, 10)
    assert (request.verb, request.items) == ("generate", ["one", "two"])
    assert request.options == {"max_tokens": 16, "temperature": 1.0, "raw": True}


def test_each_choice_is_an_item() -> None:
    raw = to_job(body(n=2, best_of=2, seed=7, logprobs=3, stop=["."], max_tokens=5)).raw
    assert raw["items"] == ["one", "one", "two", "two"]
    options = GenerateOptions.model_validate(raw["options"])
    assert (options.seed, options.logprobs, options.top_logprobs, options.stops) == (7, True, 3, (".",))
    assert options.max_tokens == 5


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"prompt": " "}, "prompt", "empty or blank"),
        ({"prompt": ["a", ""]}, "prompt[1]", "'prompt[1]' is empty"),
        ({"prompt": [1, 2]}, "prompt", "token ids"),
        ({"suffix": "end"}, "suffix", "no model here fills a text in between"),
        ({"best_of": 3}, "best_of", "by 'n'"),
        ({"echo": True, "logprobs": 0}, "echo", "cannot be had with 'logprobs'"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "set 'stream'"),
        ({"temperature": 2.5}, "temperature", "less than or equal to 2"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"max_token": 3}, "max_token", "did you mean 'max_tokens'?"),
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"prompt": ["a"] * 100, "n": 128}, "n", "more than 4096 choices"),
    ],
)
def test_what_is_refused_is_named(fields: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(RoostError) as raised:
        to_job(body(**fields))
    assert raised.value.param == param
    assert said in raised.value.message
    assert "catalog" not in raised.value.message


@pytest.mark.parametrize(
    ("n", "ours", "theirs"),
    [(1, "items[1]", "prompt[1]"), (2, "items[3]", "prompt[1]"), (2, "items", "prompt"), (2, "options.stop", "stop")],
)
def test_errors_of_the_job_name_the_prompt(n: int, ours: str, theirs: str) -> None:
    assert renamed(InvalidOption(param=ours), to_job(body(n=n)).names).param == theirs


def test_a_single_prompt_has_no_place() -> None:
    names = to_job(body(prompt="one", n=2)).names
    assert [renamed(InvalidOption(param=f"items[{i}]"), names).param for i in range(2)] == ["prompt", "prompt"]


def test_choices_come_prompt_by_prompt_and_a_prompt_counts_once() -> None:
    reply = to_reply(found(4), body(n=2))
    CompletionsReply.model_validate(reply)
    assert (reply["id"], reply["object"], reply["model"]) == (f"cmpl-{ID}", "text_completion", "org/writer")
    assert [(c["index"], c["text"], c["finish_reason"]) for c in reply["choices"]] == [
        (i, f" text {i}", "stop") for i in range(4)
    ]
    assert reply["usage"] == {"prompt_tokens": 20, "completion_tokens": 20, "total_tokens": 40}


def test_an_echo_is_the_prompt_before_its_text() -> None:
    assert [c["text"] for c in to_reply(found(), body(echo=True))["choices"]] == ["one text 0", "two text 1"]


def test_one_failed_prompt_fails_the_call_by_its_name() -> None:
    end = found()
    end.rows[1] = {"error": {"code": "text_too_long", "message": "Too long.", "retryable": False}}
    with pytest.raises(JobFailed) as raised:
        to_reply(end, body())
    assert (raised.value.code, raised.value.param) == ("text_too_long", "prompt[1]")


def test_log_probabilities_are_told_if_asked_for() -> None:
    token = {"token": " text 0", "logprob": -0.5, "bytes": list(b" text 0"), "top_logprobs": []}
    reply = to_reply(found(1, logprobs=[token]), body(prompt="one", logprobs=0))
    assert reply["choices"][0]["logprobs"]["token_logprobs"] == [-0.5]
    assert to_reply(found(1), body(prompt="one"))["choices"][0]["logprobs"] is None


async def told(sent: dict[str, Any], end: Ended) -> list[Any]:
    async def pieces() -> AsyncGenerator[Delta | Ended]:
        yield Delta(1, 0, " text")
        yield Delta(0, 0, " text 0")
        yield Delta(1, 5, " 1")
        yield end

    lines = [line async for line in events(str(ID), pieces(), sent, 5)]
    assert lines[-1] == b"data: [DONE]\n\n"
    return [orjson.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]


def text_of(chunks: list[Any], index: int) -> str:
    return "".join(c["text"] for chunk in chunks for c in chunk["choices"] if c["index"] == index)


@pytest.mark.anyio
async def test_a_stream_tells_each_choice_piece_by_piece_and_how_it_ended() -> None:
    chunks = await told(body(stream=True), found())
    for chunk in chunks:
        CompletionsReply.model_validate(chunk)
        assert "usage" not in chunk
    assert [text_of(chunks, i) for i in range(2)] == [" text 0", " text 1"]
    ends = [c for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert [(c["index"], c["finish_reason"], c["text"]) for c in ends] == [(0, "stop", ""), (1, "stop", "")]


@pytest.mark.anyio
async def test_a_stream_ends_with_its_usage_if_asked_for() -> None:
    chunks = await told(body(stream=True, stream_options={"include_usage": True}), found())
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 60


@pytest.mark.anyio
async def test_a_stream_echoes_prompts_first() -> None:
    chunks = await told(body(stream=True, echo=True), found())
    assert [text_of(chunks, i) for i in range(2)] == ["one text 0", "two text 1"]


@pytest.mark.anyio
async def test_a_prompt_that_failed_breaks_a_stream_off() -> None:
    end = found()
    end.rows[0] = {"error": {"code": "model_failed", "message": "Broken.", "retryable": False}}
    with pytest.raises(JobFailed):
        await told(body(stream=True), end)
