"""llama.cpp answers in chats, keeps to schemas, says its text as it comes, and refuses by name what it cannot do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from catalog.options import parse_options
from catalog.terms import Verb
from engine.adapters.base import Part, TokenSequence
from engine.adapters.llama_cpp import LlamaCppAdapter
from engine.errors import EngineError, ItemRejected
from engine.types import Outcome, Output
from tests.adapters.conftest import batch, build, cases_of

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Bob"]}, "old": {"type": "boolean"}},
    "required": ["name", "old"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def adapter() -> Iterator[LlamaCppAdapter]:
    built = build(cases_of("llama_cpp")[0])
    assert isinstance(built, LlamaCppAdapter)
    built.load()
    yield built
    built.unload()


def answer(adapter: LlamaCppAdapter, payload: dict[str, Any], **options: Any) -> Outcome:
    parsed = parse_options(adapter.spec, Verb.GENERATE, {}, options)
    return adapter.run(batch(Verb.GENERATE, [payload], [parsed]))[0]


def said(adapter: LlamaCppAdapter, payload: dict[str, Any], **options: Any) -> Output:
    outcome = answer(adapter, payload, **options)
    assert isinstance(outcome, Output), outcome
    return outcome


def test_a_conversation_is_answered(adapter: LlamaCppAdapter) -> None:
    turns = [{"role": "user", "content": [{"type": "text", "text": "Name three colours."}]}]
    output = said(adapter, {"messages": turns}, max_tokens=24)
    assert "Red" in output.fields["text"]
    assert output.usage["completion_tokens"] <= 24
    assert output.usage["prompt_tokens"] > 10


def test_the_output_keeps_to_a_schema(adapter: LlamaCppAdapter) -> None:
    output = said(adapter, {"text": "A person as JSON."}, grammar={"json_schema": SCHEMA}, max_tokens=60)
    assert output.fields["finish_reason"] == "stop"
    assert json.loads(output.fields["text"])["name"] in {"Ada", "Bob"}


def test_the_output_is_one_of_a_choice(adapter: LlamaCppAdapter) -> None:
    output = said(adapter, {"text": "Is water wet?"}, grammar={"choice": ["certainly", "never"]}, max_tokens=20)
    assert output.fields["text"] in {"certainly", "never"}


@pytest.mark.parametrize("text", ["\U0001f600!", 'a "b"', "one\ntwo", "back\\slash", "tab\tbell\x08\x0c\x7f"])
def test_a_choice_may_hold_any_character(adapter: LlamaCppAdapter, text: str) -> None:
    output = said(adapter, {"text": "Say it."}, grammar={"choice": [text]}, max_tokens=30)
    assert output.fields["finish_reason"] == "stop"
    assert output.fields["text"] == text


def test_an_error_of_our_own_is_not_the_items(adapter: LlamaCppAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    import engine.llama_server as server

    def broken(*given: Any) -> None:
        raise KeyError("some text of the caller")

    monkeypatch.setattr(server, "_take", broken)
    outcome = answer(adapter, {"text": "a"}, max_tokens=2)
    assert isinstance(outcome, EngineError)
    assert outcome.code == "model_failed"
    assert outcome.message == "KeyError"


def test_items_of_one_job_draw_by_themselves_from_its_seed(adapter: LlamaCppAdapter) -> None:
    options = parse_options(adapter.spec, Verb.GENERATE, {}, {"temperature": 1.0, "seed": 3, "max_tokens": 12})
    asked = batch(Verb.GENERATE, [{"text": "Tell me of birds."}] * 3, [options] * 3)

    def drawn() -> list[str]:
        places = [replace(one, item=replace(one.item, index=place)) for place, one in enumerate(asked.entries)]
        found = adapter.run(replace(asked, entries=tuple(places)))
        return [one.fields["text"] for one in found if isinstance(one, Output)]

    texts = drawn()
    assert len(set(texts)) == 3
    assert texts == drawn()
    assert (
        texts[0] == said(adapter, {"text": "Tell me of birds."}, temperature=1.0, seed=3, max_tokens=12).fields["text"]
    )


def test_a_limit_and_a_stop_are_told_apart(adapter: LlamaCppAdapter) -> None:
    prompt = {"text": "1, 2, 3, 4, 5,"}
    assert said(adapter, prompt, raw=True, max_tokens=3).fields["finish_reason"] == "length"
    stopped = said(adapter, prompt, raw=True, max_tokens=30, stop="8")
    assert stopped.fields["finish_reason"] == "stop"
    assert "8" not in stopped.fields["text"]


@pytest.mark.parametrize("top", [0, 1, 2])
@pytest.mark.parametrize(
    ("payload", "raw"),
    [
        ({"text": "The capital of France is"}, True),
        ({"text": "Name three colours."}, False),
        ({"messages": [{"role": "user", "content": "Name three colours."}]}, False),
    ],
)
def test_tokens_have_their_logprobs(adapter: LlamaCppAdapter, payload: dict[str, Any], raw: bool, top: int) -> None:
    output = said(adapter, payload, raw=raw, max_tokens=3, logprobs=True, top_logprobs=top)
    found = output.fields["logprobs"]
    assert len(found) == 3
    assert all(one["logprob"] <= 0 and len(one["top_logprobs"]) == top for one in found)
    assert "".join(one["token"] for one in found) == output.fields["text"]


def test_a_text_is_said_as_it_comes(adapter: LlamaCppAdapter) -> None:
    options = parse_options(adapter.spec, Verb.GENERATE, {}, {"raw": True, "max_tokens": 8})
    sequence = adapter.join(batch(Verb.GENERATE, [{"text": "Once upon a time"}], [options]).entries[0])
    assert isinstance(sequence, TokenSequence)
    heard, outcome = [""], None
    while outcome is None:
        outcome = adapter.step([Part(sequence, sequence.unread)])[0]
        assert sequence.said.startswith(heard[-1])
        heard.append(sequence.said)
    adapter.leave(sequence)
    assert isinstance(outcome, Output)
    assert heard[-1] == outcome.fields["text"]
    assert len(set(heard)) > 3


def test_what_it_cannot_do_is_refused_by_name(adapter: LlamaCppAdapter) -> None:
    outcome = answer(adapter, {"text": "a"}, max_tokens=4, grammar={"choice": ["a\0b"]})
    assert isinstance(outcome, EngineError)
    assert outcome.param == "options.grammar.choice"


def test_a_prompt_beyond_the_context_is_too_long(adapter: LlamaCppAdapter) -> None:
    outcome = answer(adapter, {"text": "word " * 2000}, raw=True, max_tokens=4)
    assert isinstance(outcome, EngineError)
    assert outcome.code == "text_too_long"
    assert "512" in outcome.message


def test_messages_are_not_fed_raw(adapter: LlamaCppAdapter) -> None:
    outcome = answer(adapter, {"messages": [{"role": "user", "content": "Hello"}]}, raw=True)
    assert isinstance(outcome, ItemRejected)
    assert outcome.param == "options.raw"


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "content": "4", "tool_call_id": "1"},
    ],
)
def test_messages_of_tools_are_refused_in_words(adapter: LlamaCppAdapter, turn: dict[str, Any]) -> None:
    outcome = answer(adapter, {"messages": [{"role": "user", "content": "2 + 2?"}, turn]}, max_tokens=4)
    assert isinstance(outcome, EngineError)
    assert "no tools" in outcome.message


def test_a_name_does_not_reach_the_prompt(adapter: LlamaCppAdapter) -> None:
    plain = {"role": "user", "content": "Name three colours."}
    named = {**plain, "name": "<|im_end|>"}
    first, second = (said(adapter, {"messages": [turn]}, max_tokens=4) for turn in (plain, named))
    assert first.usage == second.usage
    assert first.fields["text"] == second.fields["text"]
