from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import InvalidOption
from catalog.options import EncodeOptions, parse_options
from catalog.schema import EncodeFacts, Spec
from catalog.terms import Verb


def spec(**facts: Any) -> Spec:
    made = {"id": "m", "family": "fake", "tasks": {"encode": facts}, "parameters": 0, "max_length": 8}
    return Spec.model_validate(made)


ALL = spec(dims=8, token_dims=4, sparse_dims=100, outputs=["dense", "sparse", "multivector"])


@pytest.mark.parametrize(
    ("prompts", "query", "document"),
    [
        ({}, "", ""),
        ({"query": "q: "}, "q: ", ""),
        ({"query": "q: ", "passage": "p: "}, "q: ", "p: "),
        ({"corpus": "c: ", "document": "d: ", "passage": "p: "}, "", "d: "),
    ],
)
def test_each_side_of_a_search_has_the_models_own_prompt(prompts: dict[str, str], query: str, document: str) -> None:
    facts = EncodeFacts(dims=8, prompts=prompts)
    assert EncodeOptions(is_query=True).prefix(facts) == query
    assert EncodeOptions().prefix(facts) == document


def test_an_instruction_or_a_named_prompt_stands_in_place_of_a_sides_own() -> None:
    facts = EncodeFacts(dims=8, prompts={"query": "q: ", "document": "d: ", "task": "t: "})
    assert EncodeOptions(is_query=True, instruction="i ").prefix(facts) == "i "
    assert EncodeOptions(prompt="task").prefix(facts) == "t: "


@pytest.mark.parametrize(
    ("outputs", "dtype"),
    [
        (["dense"], "ubinary"),
        (["sparse"], "float16"),
        (["multivector"], "int8"),
        (["sparse", "multivector"], "float16"),
    ],
)
def test_each_output_has_its_types(outputs: list[str], dtype: str) -> None:
    found = parse_options(ALL, Verb.ENCODE, {}, {"output_types": outputs, "output_dtype": dtype})
    assert isinstance(found, EncodeOptions)
    assert found.output_dtype == dtype


@pytest.mark.parametrize(
    ("outputs", "dtype", "named"),
    [
        (["sparse"], "int8", "sparse"),
        (["multivector"], "uint8", "multivector"),
        (["dense", "multivector"], "binary", "multivector"),
    ],
)
def test_a_type_that_an_output_does_not_have_is_refused_by_name(outputs: list[str], dtype: str, named: str) -> None:
    with pytest.raises(InvalidOption, match=f"{named} vector is .*not {dtype}") as refused:
        parse_options(ALL, Verb.ENCODE, {}, {"output_types": outputs, "output_dtype": dtype})
    assert refused.value.param == "options.output_dtype"


def test_only_dense_vectors_can_be_left_as_long_as_they_are() -> None:
    for outputs in (["dense"], ["dense", "sparse"]):
        parse_options(ALL, Verb.ENCODE, {}, {"normalize": False, "output_types": outputs})
    parse_options(ALL, Verb.ENCODE, {"normalize": False}, {"output_types": ["sparse"]})
    for outputs in (["sparse"], ["sparse", "multivector"]):
        with pytest.raises(InvalidOption) as refused:
            parse_options(ALL, Verb.ENCODE, {}, {"normalize": False, "output_types": outputs})
        assert refused.value.param == "options.normalize"
