"""How a wrong option is named, whichever verb it is of."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from catalog.errors import InvalidOption
from catalog.options import option_names, parse_options
from catalog.options.generate import MOST_BIASES, GenerateOptions
from catalog.schema import EncodeFacts, ExtractFacts, ExtractKind, GenerateFacts, LoraSource, ScoreFacts, Spec, Tasks
from catalog.terms import Verb

SPEC = Spec(
    id="m",
    family="f",
    tasks=Tasks(
        encode=EncodeFacts(dims=8),
        score=ScoreFacts(),
        extract=ExtractFacts(kinds=(ExtractKind.ENTITIES, ExtractKind.OBJECTS), tasks=("a", "b")),
        generate=GenerateFacts(),
    ),
    parameters=0,
    max_length=100,
)


@pytest.mark.parametrize(
    ("verb", "options", "param"),
    [
        (Verb.SCORE, {"top_n": -1}, "top_n"),
        (Verb.SCORE, {"top_n": 1.5}, "top_n"),
        (Verb.SCORE, {"topn": 1}, "topn"),
        (Verb.EXTRACT, {"labels": ["a", ""]}, "labels[1]"),
        (Verb.EXTRACT, {"labels": ["a", " \n"]}, "labels[1]"),
        (Verb.EXTRACT, {"labels": ["a", 3]}, "labels[1]"),
        (Verb.EXTRACT, {"threshold": 2}, "threshold"),
        (Verb.EXTRACT, {"threshold": float("nan")}, "threshold"),
        (Verb.EXTRACT, {"task": "c"}, "task"),
        (Verb.EXTRACT, {"pages": "1-2"}, "pages"),
        (Verb.GENERATE, {"stop": ["a", ""]}, "stop"),
        (Verb.GENERATE, {"stop": 3}, "stop"),
        (Verb.GENERATE, {"grammar": {"json_schema": 3}}, "grammar.json_schema"),
        (Verb.GENERATE, {"grammar": {"json": {}}}, "grammar.json"),
        (Verb.GENERATE, {"grammar": {"choice": ["a", ""]}}, "grammar.choice[1]"),
        (Verb.GENERATE, {"tools": [{"a": {1, 2}}]}, "tools[0]"),
        (Verb.GENERATE, {"logit_bias": {"x": 1}}, "logit_bias"),
        (Verb.GENERATE, {"logit_bias": {"7": 1000}}, "logit_bias"),
        (Verb.GENERATE, {"logit_bias": {"7" * 5000: 1}}, "logit_bias"),
        (Verb.GENERATE, {"temperature": "0"}, "temperature"),
        (Verb.GENERATE, {"max_tokens": True}, "max_tokens"),
    ],
)
def test_a_wrong_option_is_named_by_its_place(verb: Verb, options: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_options(SPEC, verb, {}, options)
    assert (caught.value.param or "").startswith(f"options.{param}")
    assert "function-" not in caught.value.message
    assert "[str" not in caught.value.message


def test_an_option_of_another_kind_of_extraction_is_not_taken() -> None:
    with pytest.raises(InvalidOption, match="for extract"):
        parse_options(SPEC, Verb.EXTRACT, {}, {"ocr": True})


def test_an_option_that_the_family_does_nothing_with_is_refused_by_name_and_not_told() -> None:
    tagger = SPEC.model_copy(update={"family": "token_classifier"})
    assert set(option_names(SPEC, Verb.EXTRACT)) - set(option_names(tagger, Verb.EXTRACT)) == {
        "instruction",
        "flat_ner",
        "multi_label",
    }
    with pytest.raises(InvalidOption, match="'m' does nothing with the option 'instruction'") as caught:
        parse_options(tagger, Verb.EXTRACT, {}, {"instruction": "find"})
    assert caught.value.param == "options.instruction"


@pytest.mark.parametrize(
    ("options", "param", "said"),
    [
        ({"min_tokens": 3}, "min_tokens", "'m' does nothing with the option 'min_tokens' for generate; it takes: max_"),
        (
            {"grammar": {"regex": "a+"}},
            "grammar.regex",
            "'m' keeps to no regex; its grammars are: json_schema, choice.",
        ),
        ({"grammar": {"lark": 'start: "a"'}}, "grammar.lark", "'m' keeps to no lark; its grammars are: json_"),
    ],
)
def test_what_llama_cpp_cannot_do_is_refused_by_name(options: dict[str, Any], param: str, said: str) -> None:
    model = SPEC.model_copy(update={"family": "llama_cpp"})
    parse_options(SPEC, Verb.GENERATE, {}, options)
    assert "min_tokens" not in option_names(model, Verb.GENERATE)
    with pytest.raises(InvalidOption) as caught:
        parse_options(model, Verb.GENERATE, {}, options)
    assert caught.value.param == f"options.{param}"
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("grammar", {"grammar": {"regex": "a+"}}),
        ("logprobs", {"logprobs": True}),
        ("top_logprobs", {"top_logprobs": 2}),
    ],
)
def test_a_model_that_computes_nothing_has_no_probabilities_and_keeps_to_no_grammar(
    name: str, options: dict[str, Any]
) -> None:
    model = SPEC.model_copy(update={"family": "fake_generator"})
    assert name not in option_names(model, Verb.GENERATE)
    with pytest.raises(InvalidOption, match=f"'m' does nothing with the option '{name}'") as caught:
        parse_options(model, Verb.GENERATE, {}, options)
    assert caught.value.param == f"options.{name}"


def test_what_another_option_makes_idle_is_refused_only_where_a_caller_sent_it() -> None:
    for name, value in (("thinking", False), ("tools", [{"name": "f"}])):
        tools = SPEC.model_copy(update={"tasks": Tasks(generate=GenerateFacts(tools=True))})
        parse_options(tools, Verb.GENERATE, {name: value}, {"raw": True})
        with pytest.raises(InvalidOption) as caught:
            parse_options(tools, Verb.GENERATE, {}, {"raw": True, name: value})
        assert caught.value.param == f"options.{name}"


def test_whole_numbers_are_good_for_fractions() -> None:
    options = parse_options(SPEC, Verb.GENERATE, {}, {"temperature": 1, "top_p": 1})
    assert options.model_dump(include={"temperature", "top_p"}) == {"temperature": 1.0, "top_p": 1.0}


def test_defaults_of_a_model_of_several_verbs_go_to_those_that_have_them() -> None:
    run = {"threshold": 0.3, "top_n": 5}
    assert parse_options(SPEC, Verb.SCORE, run, {}).model_dump()["top_n"] == 5
    assert parse_options(SPEC, Verb.EXTRACT, run, {"threshold": 0.9}).model_dump()["threshold"] == 0.9


def test_only_what_does_something_with_a_model_is_told_of_it() -> None:
    plain = {verb: set(option_names(SPEC, verb)) for verb in SPEC.verbs}
    assert plain[Verb.ENCODE] == {"normalize", "truncate", "output_dtype", "instruction"}
    assert plain[Verb.SCORE] == {"top_n", "truncate", "instruction"}
    assert {"labels", "box_threshold"} <= plain[Verb.EXTRACT]
    assert "ocr" not in plain[Verb.EXTRACT]
    assert {"grammar", "max_tokens"} <= plain[Verb.GENERATE]
    assert not plain[Verb.GENERATE] & {"tools", "lora"}
    tasks = SPEC.tasks.model_copy(
        update={
            "encode": EncodeFacts(
                dims=8, matryoshka=(4,), token_dims=4, outputs=("dense", "multivector"), prompts={"query": "q: "}
            ),
            "generate": GenerateFacts(tools=True),
        }
    )
    rich = SPEC.model_copy(update={"tasks": tasks, "loras": {"a": LoraSource(path="a")}})
    assert {"dimensions", "prompt", "is_query", "output_types"} <= set(option_names(rich, Verb.ENCODE))
    assert {"tools", "lora"} <= set(option_names(rich, Verb.GENERATE))


def test_biases_are_counted_before_any_of_them_is_looked_at() -> None:
    with pytest.raises(ValidationError) as caught:
        GenerateOptions.model_validate({"logit_bias": dict.fromkeys(map(str, range(MOST_BIASES + 1)), "x")})
    assert caught.value.error_count() == 1
