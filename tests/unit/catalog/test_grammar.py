"""Grammars at the door: what is wrong is refused by its place, and what passes holds every output."""

from __future__ import annotations

import json
import random
import re
import socket
import time
from functools import reduce
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from catalog.errors import InvalidOption
from catalog.grammar import check_grammar, check_shape
from catalog.jsonschema import KEPT, NOTES
from catalog.options import parse_options
from catalog.schema import GenerateFacts, Spec, Tasks
from catalog.terms import Verb

SPEC = Spec(id="g", family="g", tasks=Tasks(generate=GenerateFacts()), parameters=0, max_length=4096)


def check(**grammar: Any) -> None:
    """As a request does: the options first, then the grammar in them."""
    options = parse_options(SPEC, Verb.GENERATE, {}, {"grammar": grammar})
    check_grammar(options.grammar)  # type: ignore[attr-defined]


def refused(**grammar: Any) -> InvalidOption:
    with pytest.raises(InvalidOption) as caught:
        check(**grammar)
    return caught.value


def nested(depth: int) -> Any:
    deep: Any = {"type": "string"}
    return reduce(lambda inner, _: {"type": "array", "items": inner}, range(depth), deep)


@pytest.mark.parametrize(
    ("schema", "where", "says"),
    [
        ({"type": "strng"}, ".type", "must be one of null"),
        ({"properties": ["a"]}, ".properties", "a schema for each name"),
        ({"enum": []}, ".enum", "at least one"),
        (False, "", "nothing through"),
        ({"properties": {"a": {"type": "string", "format": "weird"}}}, ".properties.a", "Unknown format: weird"),
        (
            {"properties": {"a": {"anyOf": [{"type": "null"}, {"pattern": "(?=a)"}]}}},
            ".properties.a.anyOf[1]",
            "look-ahead",
        ),
        ({"items": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}, ".items", "oneOf"),
        ({"type": "string", "minLength": 5, "maxLength": 2}, "", "minLength"),
        ({"$ref": "/$defs/Color", "$defs": {"Color": {"enum": ["red"]}}}, ".$ref", "inside this one"),
        ({"$ref": "https://a.b/c"}, ".$ref", "inside this one"),
        ({"type": "object", "properties": {"a": {"uniqueItems": True}}}, ".properties.a.uniqueItems", "not supported"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused_with_the_place_of_its_fault(
    schema: Any, where: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_is_fetched(*_: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", nothing_is_fetched)
    error = refused(json_schema=schema)
    assert error.param == f"options.grammar.json_schema{where}"
    assert says in error.message


@pytest.mark.parametrize("schema", [{}, True, nested(50)])
def test_a_schema_that_lets_anything_through_or_is_deep_is_taken(schema: Any) -> None:
    check(json_schema=schema)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (nested(300), "at most 120 levels"),
        ({"properties": {"a": nested(9), "b": nested(130)}}, "at most 120 levels"),
        ({"description": "x" * 5_000_000}, "at most 1048576 bytes"),
        ({"enum": ["x" * 100] * 50_000}, "at most 1048576 bytes"),
        ({"description": "ä" * 700_000}, "at most 1048576 bytes"),
        ({"default": {"a": float("nan")}}, "finite"),
    ],
)
def test_a_schema_over_the_limits_is_refused_at_once(schema: Any, says: str) -> None:
    start = time.process_time()
    error = refused(json_schema=schema)
    assert time.process_time() - start < 0.2
    assert says in error.message
    assert (error.param or "").startswith("options.grammar")


def test_a_fault_deep_in_a_large_schema_is_looked_for_no_longer_than_a_second() -> None:
    parts = [{"type": "object", "properties": {"x": {"format": "date"}}} for _ in range(4000)]
    parts[3000]["properties"]["x"]["format"] = "weird"  # type: ignore[index]
    start = time.process_time()
    assert "weird" in refused(json_schema={"anyOf": parts}).message
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize(
    ("grammar", "kind"),
    [
        ({"regex": "(a"}, "regex"),
        ({"regex": "(?=a)b"}, "regex"),
        ({"regex": r"(a)\1"}, "regex"),
        ({"lark": 'strt: "a"'}, "lark"),
        ({"lark": "start: other"}, "lark"),
        ({"lark": "start: <|im_end|>"}, "lark"),
        ({"lark": 'start: %json {"x-foo": 1}'}, "lark"),
    ],
)
def test_what_is_no_regex_or_grammar_is_refused(grammar: dict[str, str], kind: str) -> None:
    assert refused(**grammar).param == f"options.grammar.{kind}"


@pytest.mark.parametrize(
    "grammar", [{"regex": "[a-z]{1,9}"}, {"lark": 'start: "a" start | "b"'}, {"choice": ["yes", 'n"o', "ä\n"]}]
)
def test_a_regex_a_grammar_and_a_choice_are_taken(grammar: dict[str, Any]) -> None:
    check(**grammar)


def test_one_grammar_has_one_form() -> None:
    assert refused(regex="a", choice=["b"]).param == "options.grammar"
    assert refused().param == "options.grammar"


def test_a_shape_is_checked_without_a_look_at_what_can_be_kept() -> None:
    check_shape({"type": "object", "properties": {"a": {"type": "string", "x-hint": 1}}}, "options.output_schema")
    with pytest.raises(InvalidOption) as caught:
        check_shape({"properties": {"a": {"type": "strng"}}}, "options.output_schema")
    assert caught.value.param == "options.output_schema.properties.a.type"


COLOUR = {"enum": ["red", "green"]}
HELD: list[Any] = [
    {"$ref": "#/$defs/Color", "$defs": {"Color": COLOUR}},
    {"$ref": "#/definitions/Color", "definitions": {"Color": COLOUR}},
    {"type": "string", "pattern": "^[a-f]+$", "maxLength": 8, "minLength": 3},
    {"type": "string", "pattern": "b", "maxLength": 4},
    {"type": "integer", "minimum": 1, "maximum": 3},
    {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 9, "multipleOf": 3},
    {"type": "number", "minimum": -0.5, "maximum": 0.5},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
    {"type": "array", "prefixItems": [{"const": 1}, {"type": "null"}], "items": False, "minItems": 2},
    {"type": "object", "properties": {"a": COLOUR}, "required": ["a"], "additionalProperties": False},
    {"type": "object", "patternProperties": {"^[a-c]$": {"const": 7}}, "additionalProperties": False},
    {"type": "object", "additionalProperties": {"const": 1}, "minProperties": 1, "maxProperties": 2},
    {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "integer", "minimum": 0, "maximum": 9}]},
    {"oneOf": [{"const": "a"}, {"type": "integer", "minimum": 0, "maximum": 9}]},
    {"allOf": [{"type": "integer", "minimum": 2}, {"maximum": 4}]},
    {"type": "string", "format": "date"},
    {"const": {"a": [1, "b", None]}},
    {"$ref": "#/$defs/s", "maxLength": 3, "$defs": {"s": {"type": "string"}}},
    {"type": ["null", "boolean"]},
]


class Bytes:
    """A tokenizer whose tokens are bytes."""

    eos_token_id = 256
    bos_token_id = None
    tokens = (*(bytes([n]) for n in range(256)), b"<end>")
    special_token_ids = (256,)

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


@pytest.fixture(scope="module")
def tokenizer() -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(Bytes()))


def sampled(tokenizer: LLTokenizer, schema: Any, chance: random.Random) -> str | None:
    """A random text that the compiler lets through; None if it came to no end."""
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    made = bytearray()
    for _ in range(300):
        bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little")[:257]).tolist()
        # Mostly plain letters and what ends something, so that texts stay short and are UTF-8.
        short = [n for n in allowed if n in {*b'"}]', 256}]
        plain = [n for n in allowed if 32 < n < 127 or n == 256] or allowed
        token = chance.choice(short if short and chance.random() < 0.5 else plain)
        if token == 256:
            return made.decode()
        made.append(token)
        matcher.consume_token(token)
        if matcher.is_stopped():
            return made.decode()
    return None


@pytest.mark.parametrize("schema", HELD, ids=lambda schema: re.sub(r"\W+", "-", json.dumps(schema))[:60])
def test_what_passes_the_door_holds_every_output(tokenizer: LLTokenizer, schema: Any) -> None:
    check(json_schema=schema)
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    chance = random.Random(7)
    texts = [text for _ in range(30) if (text := sampled(tokenizer, schema, chance)) is not None]
    assert len(texts) >= 10
    for text in texts:
        validator.validate(json.loads(text))


def test_every_keyword_that_is_kept_is_tried_above() -> None:
    tried = {name for schema in HELD for name in re.findall(r'"([$\w]+)":', json.dumps(schema))}
    assert tried >= set(KEPT)
    assert not set(KEPT) & set(NOTES)
