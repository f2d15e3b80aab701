"""Whatever a model likes to say, what comes out keeps to its grammar, or ends as `length`."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from engine.adapters.causal_lm import CausalLmAdapter
from engine.errors import ItemRejected
from engine.types import Output
from tests.adapters.causal_lm.conftest import answers, outcomes

SEEDS = range(10)
COLOR: dict[str, Any] = {
    "$defs": {"Color": {"enum": ["red", "green", "dark blue"]}},
    "type": "object",
    "properties": {"color": {"$ref": "#/$defs/Color"}, "many": {"type": "integer", "minimum": 1, "maximum": 3}},
    "required": ["color", "many"],
    "additionalProperties": False,
}
CODE = {"type": "string", "pattern": "^[a-z]+$", "maxLength": 8}
PAIR = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}


def drawn(adapter: CausalLmAdapter, grammar: dict[str, Any], **more: Any) -> list[Output]:
    own = [{"seed": seed} for seed in SEEDS]
    return answers(adapter, ["Write prose."] * len(own), *own, grammar=grammar, temperature=1.0, **more)


@pytest.mark.parametrize("schema", [COLOR, CODE, PAIR])
def test_samples_are_valid_json_of_the_schema(qwen3: CausalLmAdapter, schema: dict[str, Any]) -> None:
    found = drawn(qwen3, {"json_schema": schema}, max_tokens=64)
    for one in found:
        assert one.fields["finish_reason"] == "stop", one
        jsonschema.validate(json.loads(one.fields["text"]), schema)
    assert len({one.fields["text"] for one in found}) > 1


def test_a_model_that_wants_nothing_but_blanks_still_writes_json(qwen3: CausalLmAdapter) -> None:
    tokenizer = qwen3.tokenizer_of()
    count = tokenizer.backend_tokenizer.get_vocab_size()
    blank = [index for index in range(count) if (text := tokenizer.decode([index])) and not text.strip()]
    assert len(blank) > 2
    found = drawn(qwen3, {"json_schema": COLOR}, max_tokens=256, logit_bias={str(index): 100.0 for index in blank})
    for one in found:
        text = one.fields["text"]
        assert not re.search(r"\s{2}", text)
        assert one.fields["finish_reason"] == "stop"
        jsonschema.validate(json.loads(text), COLOR)


def test_regex_lark_and_choice(qwen3: CausalLmAdapter) -> None:
    grammars = [
        {"regex": "[0-9]{3}-[a-f]+x"},
        {"lark": 'start: ("owl" | "wren") " " /[0-9]/'},
        {"choice": ['yes "so"', "no\n", "perhaps é"]},
    ]
    patterns = [r"[0-9]{3}-[a-f]+x", r"(owl|wren) [0-9]", r'(yes "so"|no\n|perhaps é)']
    found = answers(qwen3, ["?"] * 3, *({"grammar": one} for one in grammars), max_tokens=60, temperature=1.0, seed=1)
    for one, pattern in zip(found, patterns, strict=True):
        assert (one.fields["finish_reason"], bool(re.fullmatch(pattern, one.fields["text"]))) == ("stop", True), one


def test_a_text_cut_by_its_length_says_so(qwen3: CausalLmAdapter) -> None:
    (found,) = answers(qwen3, ["?"], grammar={"regex": "[0-9]{40}"}, max_tokens=3)
    assert found.fields["finish_reason"] == "length"
    assert found.fields["text"].isdigit()


def test_control_tokens_are_no_text_of_a_grammar(qwen3: CausalLmAdapter) -> None:
    begin = str(qwen3.tokenizer_of().convert_tokens_to_ids("<|im_start|>"))
    (found,) = answers(qwen3, ["?"], grammar={"regex": "(?s:.{1,9})"}, max_tokens=9, logit_bias={begin: 100.0})
    assert 1 <= len(found.fields["text"]) <= 9


def test_a_grammar_that_cannot_be_kept_fails_its_own_item(qwen3: CausalLmAdapter) -> None:
    bad = [{"grammar": {"lark": "start: nothing_like_that"}}, {"grammar": {"regex": "("}}, {}]
    first, second, last = outcomes(qwen3, ["?"] * 3, *bad)
    for one in (first, second):
        assert isinstance(one, ItemRejected)
        assert one.param == "options.grammar"
    assert isinstance(last, Output)
