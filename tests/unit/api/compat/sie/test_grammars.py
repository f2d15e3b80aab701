from __future__ import annotations

from typing import Any

import pytest

from api.compat.sie.grammars import native_grammar
from catalog.errors import InvalidOption
from catalog.grammar import check_grammar
from catalog.options import Grammar


def test_a_schema_and_a_regular_expression_are_as_they_are() -> None:
    schema = {"type": "object"}
    assert native_grammar({"json_schema": schema, "label": "x", "strict": True})[0] == {"json_schema": schema}
    assert native_grammar({"regex": "a+"})[0] == {"regex": "a+"}


def test_ebnf_becomes_a_grammar_that_compiles() -> None:
    made, names = native_grammar({"ebnf": 'root ::= "yes" | "no" more\nmore ::= [a-z]+'})
    check_grammar(Grammar.model_validate(made))
    assert names["options.grammar.lark"] == "grammar.ebnf"


def test_a_lark_grammar_is_taken_as_it_is() -> None:
    assert native_grammar({"ebnf": 'start: "yes"'})[0] == {"lark": 'start: "yes"'}


@pytest.mark.parametrize(
    ("grammar", "param"),
    [
        ("a+", "grammar"),
        ({}, "grammar"),
        ({"regex": "a", "ebnf": "b"}, "grammar"),
        ({"regexp": "a"}, "grammar.regexp"),
        ({"regex": "a", "strict": "yes"}, "grammar.strict"),
        ({"regex": "a", "label": 3}, "grammar.label"),
        ({"ebnf": 'root ::= "unclosed'}, "grammar.ebnf"),
        ({"ebnf": 'trunk ::= "no root"'}, "grammar.ebnf"),
        ({"ebnf": "root ::= " + "(" * 5000}, "grammar.ebnf"),
        ({"ebnf": 7}, "grammar.ebnf"),
    ],
)
def test_what_is_no_grammar_is_refused(grammar: Any, param: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        native_grammar(grammar)
    assert caught.value.param == param
