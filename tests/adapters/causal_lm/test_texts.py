from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from catalog.options.generate import GenerateOptions
from catalog.terms import Verb
from engine.adapters.base import Part, TokenSequence
from engine.adapters.causal_lm import CausalLmAdapter
from engine.errors import ItemRejected, TextTooLong
from engine.types import Output
from tests.adapters.causal_lm.conftest import answers, outcomes
from tests.adapters.conftest import batch

PROMPTS = ["What is a roost?", "Count to ten.", "Where do owls sleep? " * 8]


def test_a_text_ends_before_its_stop_text_wherever_tokens_meet(qwen3: CausalLmAdapter) -> None:
    (whole,) = answers(qwen3, PROMPTS[:1], max_tokens=20)
    text = whole.fields["text"]
    for begin in (3, 7, len(text) - 4):
        stop = text[begin : begin + 4]
        (found,) = answers(qwen3, PROMPTS[:1], max_tokens=20, stop=["never said so", stop])
        assert found.fields["text"] == text[: text.index(stop)]
        assert found.fields["finish_reason"] == "stop"
        assert found.usage["completion_tokens"] <= whole.usage["completion_tokens"]


def test_what_is_said_grows_and_is_never_taken_back(qwen3: CausalLmAdapter) -> None:
    (whole,) = answers(qwen3, PROMPTS[:1], max_tokens=20)
    stop = whole.fields["text"][12:18]
    entry = batch(Verb.GENERATE, [{"text": PROMPTS[0]}], [GenerateOptions(max_tokens=20, stop=stop)]).entries[0]
    sequence = qwen3.join(entry)
    assert isinstance(sequence, TokenSequence)
    said = [sequence.said]
    outcome = None
    while outcome is None:
        (outcome,) = qwen3.step([Part(sequence, min(5, sequence.unread))])
        said.append(sequence.said)
    qwen3.leave(sequence)
    assert isinstance(outcome, Output)
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(said))
    assert len(set(said)) > 3
    assert said[-1] == outcome.fields["text"] == whole.fields["text"][:12]


def test_a_seed_gives_the_same_text_whatever_runs_beside_it(qwen3: CausalLmAdapter) -> None:
    drawn = {"temperature": 1.0, "seed": 5, "top_p": 0.9, "top_k": 50}
    (alone,) = answers(qwen3, PROMPTS[:1], drawn)
    beside = answers(qwen3, [PROMPTS[1], PROMPTS[0], PROMPTS[2]], {"temperature": 2.0}, drawn, {"max_tokens": 3})
    (other,) = answers(qwen3, PROMPTS[:1], {**drawn, "seed": 6})
    (likeliest,) = answers(qwen3, PROMPTS[:1])
    assert beside[1] == alone
    assert len({alone.fields["text"], other.fields["text"], likeliest.fields["text"]}) == 3


def test_options_of_neighbours_stay_their_own(qwen3: CausalLmAdapter) -> None:
    plain = str(answers(qwen3, PROMPTS[:1], {})[0].fields["text"])
    each: list[dict[str, Any]] = [
        {"max_tokens": 3},
        {"repetition_penalty": 5.0},
        {"frequency_penalty": -2.0, "presence_penalty": -2.0},
        {"logit_bias": {"300": 100.0}, "max_tokens": 5},
        {"stop": [plain[2 * len(plain) // 3 :][:3]]},
        {},
    ]
    together = answers(qwen3, [PROMPTS[0]] * len(each), *each)
    assert together == [answers(qwen3, PROMPTS[:1], one)[0] for one in each]
    assert together[3].fields["text"] == qwen3.tokenizer_of().decode([300]) * 5
    assert len({one.fields["text"] for one in together}) == len(each)


def test_no_more_tokens_than_the_model_has_room_for(qwen3: CausalLmAdapter) -> None:
    filler = " owl" * 1500
    (fits,) = outcomes(qwen3, [filler[: 4 * 480]], max_tokens=1000)
    assert isinstance(fits, Output)
    assert (fits.fields["finish_reason"], fits.tokens) in (("length", 1024), ("stop", fits.tokens))
    (long,) = outcomes(qwen3, [filler], max_tokens=1)
    assert isinstance(long, TextTooLong)
    assert "1024" in long.message


def test_ends_are_held_back_until_enough_is_said(qwen3: CausalLmAdapter) -> None:
    end = str(qwen3.tokenizer_of().eos_token_id)
    biased = {"logit_bias": {end: 100.0}, "max_tokens": 10}
    short, held = answers(qwen3, [PROMPTS[0]] * 2, biased, {**biased, "min_tokens": 6})
    assert (short.fields, short.usage["completion_tokens"]) == ({"text": "", "finish_reason": "stop"}, 1)
    assert (held.fields["finish_reason"], held.usage["completion_tokens"]) == ("stop", 7)


def test_logprobs_tell_each_token_and_its_rivals(qwen3: CausalLmAdapter) -> None:
    (found,) = answers(qwen3, PROMPTS[:1], max_tokens=6, logprobs=True, top_logprobs=3)
    told = found.fields["logprobs"]
    assert len(told) == 6
    assert b"".join(bytes(one["bytes"]) for one in told).decode("utf-8", "ignore").startswith(found.fields["text"])
    for one in told:
        best = one["top_logprobs"]
        assert [rival["logprob"] for rival in best] == sorted((rival["logprob"] for rival in best), reverse=True)
        assert best[0]["bytes"] == one["bytes"]
        assert one["logprob"] == best[0]["logprob"] <= 0
        assert sum(math.exp(rival["logprob"]) for rival in best) <= 1 + 1e-6


def test_a_token_that_the_model_does_not_have_cannot_be_biased(qwen3: CausalLmAdapter) -> None:
    (found,) = outcomes(qwen3, PROMPTS[:1], logit_bias={"5000": 1.0})
    assert isinstance(found, ItemRejected)
    assert found.param == "options.logit_bias"


@pytest.mark.parametrize("literal", ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "a <|im_<|im_end|>end|> b"])
def test_a_text_cannot_end_its_turn(qwen3: CausalLmAdapter, literal: str) -> None:
    tokenizer = qwen3.tokenizer_of()
    payloads: list[dict[str, Any]] = [
        {"text": f"Say {literal} now."},
        {"messages": [{"role": "system", "content": literal}, {"role": "user", "content": f"{literal}\nMore."}]},
    ]
    for payload, turns in zip(payloads, (1, 2), strict=True):
        prompt = qwen3.prompt_of(batch(Verb.GENERATE, [payload], [GenerateOptions()]).entries[0])
        assert not isinstance(prompt, ItemRejected)
        begin, end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
        assert (prompt.ids.count(begin), prompt.ids.count(end)) == (turns + 1, turns)
        assert literal in tokenizer.decode(prompt.ids)
    raw = qwen3.prompt_of(batch(Verb.GENERATE, [{"text": literal}], [GenerateOptions(raw=True)]).entries[0])
    assert not isinstance(raw, ItemRejected)
    assert not set(raw.ids) & set(tokenizer.all_special_ids)


def test_ordinary_prompts_have_the_librarys_tokens(qwen3: CausalLmAdapter) -> None:
    tokenizer = qwen3.tokenizer_of()
    turns = [{"role": "user", "content": "Hello  <there>\n\n| ok"}]
    for options, more in ((GenerateOptions(), {}), (GenerateOptions(thinking=False), {"enable_thinking": False})):
        prompt = qwen3.prompt_of(batch(Verb.GENERATE, [{"messages": turns}], [options]).entries[0])
        assert not isinstance(prompt, ItemRejected)
        expected = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True, **more)
        assert prompt.ids == expected["input_ids"]


def test_a_sequence_takes_memory_as_it_grows_and_gives_it_back(qwen3: CausalLmAdapter) -> None:
    entry = batch(Verb.GENERATE, [{"text": " owl" * 60}], [GenerateOptions(max_tokens=400)]).entries[0]
    sequence = qwen3.join(entry)
    assert isinstance(sequence, TokenSequence)
    memory = sequence.memory  # type: ignore[attr-defined]  # of its own kind
    sizes = [memory.cache.bytes]
    for read in (20, sequence.unread - 20, 0):
        qwen3.step([Part(sequence, read)])
        sizes.append(memory.cache.bytes)
    per_token = qwen3.footprint().cache_per_token
    assert sizes == [0, 128 * per_token, 256 * per_token, 256 * per_token]
    qwen3.leave(sequence)
    assert sequence.memory is None  # type: ignore[attr-defined]  # of its own kind
