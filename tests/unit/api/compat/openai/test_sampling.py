"""OpenAI's words for how tokens are chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from api.compat.openai import chat, completions
from api.compat.openai.sampling import MOST_COPIED_BYTES, Sampling, check_copies, options_of, usage_of
from catalog.options.generate import GenerateOptions
from tasks.errors import LimitExceeded


def test_what_is_left_out_is_openai_s_default() -> None:
    assert options_of(Sampling()) == {"temperature": 1.0}
    assert options_of(Sampling(temperature=None, top_p=None, stop=None)) == {"temperature": 1.0}


def test_every_field_becomes_the_option_of_its_name() -> None:
    asked = Sampling(
        max_tokens=7,
        temperature=0,
        top_p=0.5,
        seed=3,
        stop=["a", "b"],
        frequency_penalty=1,
        presence_penalty=-1,
        logit_bias={"5": -100},
        top_k=4,
        min_tokens=2,
        repetition_penalty=1.1,
        n=3,
        user="someone",
    )
    options = GenerateOptions.model_validate(options_of(asked))
    assert (options.max_tokens, options.temperature, options.top_p, options.seed) == (7, 0, 0.5, 3)
    assert (options.stops, options.logit_bias, options.top_k, options.min_tokens) == (("a", "b"), {"5": -100}, 4, 2)
    assert (options.frequency_penalty, options.presence_penalty, options.repetition_penalty) == (1, -1, 1.1)
    assert asked.choices == 3


def test_a_prompt_counts_once_however_many_choices_it_has() -> None:
    usage = {"items": 3, "tokens": 36, "prompt_tokens": 30, "completion_tokens": 6}
    assert usage_of(usage, 3) == {"prompt_tokens": 10, "completion_tokens": 6, "total_tokens": 16}
    assert usage_of(None)["total_tokens"] == 0


MANY = dict.fromkeys(map(str, range(100_000)), "x")


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"stop": [0] * 100_000}, "stop"), ({"stop": 3}, "stop"), ({"logit_bias": MANY}, "logit_bias")],
    ids=["many stops", "no text", "many biases"],
)
def test_what_is_far_too_much_is_refused_without_a_look_at_each(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Sampling.model_validate(fields)
    assert raised.value.error_count() == 1
    assert str(raised.value.errors()[0]["loc"][0]) == param


@pytest.mark.parametrize("choices", [1, 32])
def test_prompts_may_be_repeated_up_to_a_size(choices: int) -> None:
    check_copies(["a" * (MOST_COPIED_BYTES // 33)], choices)


def test_a_prompt_that_its_choices_would_repeat_too_often_is_refused_before_it_is_copied() -> None:
    with pytest.raises(LimitExceeded, match="there may be 3") as caught:
        check_copies(["a" * (MOST_COPIED_BYTES // 4)], 128)
    assert caught.value.param == "n"


@pytest.mark.parametrize(
    ("to_job", "body"),
    [
        (chat.to_job, {"messages": [{"role": "user", "content": "a" * 2**20}]}),
        (completions.to_job, {"prompt": ["a" * 2**19, "b" * 2**19]}),
    ],
)
def test_both_routes_hold_their_choices_to_it(
    to_job: Callable[[dict[str, object]], object], body: dict[str, object]
) -> None:
    with pytest.raises(LimitExceeded, match="'n' repeats"):
        to_job({"model": "m", "n": 128, **body})
