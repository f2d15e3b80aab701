from __future__ import annotations

from typing import Any

import pytest

from api.compat.sie.grammars import MOST_CHARS, MOST_RULES, has_grammar, native_grammar
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


def chain(rules: int, filler: str = "") -> str:
    return (
        "root ::= r1\n"
        + "".join(f"r{n} ::= {filler}r{n + 1}?\n" for n in range(1, rules - 1))
        + f'r{rules - 1} ::= "x"'
    )


@pytest.mark.parametrize("ebnf", [chain(MOST_RULES + 1), "root ::= " + "." * MOST_CHARS])
def test_an_ebnf_that_would_be_read_for_seconds_is_refused_with_the_limit(ebnf: str) -> None:
    with pytest.raises(InvalidOption, match=f"{MOST_CHARS} and {MOST_RULES}") as caught:
        native_grammar({"ebnf": ebnf})
    assert caught.value.param == "grammar.ebnf"


def test_an_ebnf_at_the_limit_is_taken() -> None:
    ebnf = chain(MOST_RULES, "." * 45)
    assert MOST_CHARS - 1000 < len(ebnf) <= MOST_CHARS
    assert native_grammar({"ebnf": ebnf})[0]["lark"].count("\n") >= MOST_RULES


def test_a_lark_grammar_may_be_longer() -> None:
    lark = "start: " + '"a" ' * MOST_CHARS
    assert native_grammar({"ebnf": lark})[0] == {"lark": lark}


@pytest.mark.parametrize(
    ("body", "has"),
    [
        ({"grammar": {"ebnf": "x"}}, True),
        ({"options": {"grammar": None}}, True),
        ({"options": {"seed": 1}}, False),
        ({"options": "grammar"}, False),
        (["grammar"], False),
    ],
)
def test_a_grammar_is_found_in_a_body_and_in_its_options(body: Any, has: bool) -> None:
    assert has_grammar(body) is has
