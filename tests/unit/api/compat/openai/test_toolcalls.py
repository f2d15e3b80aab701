"""Calls of functions in what models write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.compat.openai.toolcalls import Call, begins, calls_in, listed_calls

TOOLS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "only": {"type": ["array", "null"]},
        },
    },
    "stop": {"type": "object", "properties": {}},
}
HERMES = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}\n</tool_call>'
CODER = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "<parameter=unit>\nnull\n</parameter>\n<parameter=only>\n[1, 2]\n</parameter>\n</function>\n</tool_call>"
)
OSLO = {"city": "Oslo", "days": 3}


def read(text: str) -> tuple[str, list[tuple[str, Any]]]:
    words, calls = calls_in(text, TOOLS)
    return words, [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize(
    "text",
    [
        HERMES,
        HERMES.removesuffix("</tool_call>"),
        '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Oslo\\", \\"days\\": 3}"}</tool_call>',
        '{"name": "weather", "parameters": {"city": "Oslo", "days": 3}}',
        '{"type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo", "days": 3}}}',
        '<|python_tag|>{"name": "weather", "parameters": {"city": "Oslo", "days": 3}}',
        '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}]',
        '[TOOL_CALLS]weather{"city": "Oslo", "days": 3}',
        '[TOOL_CALLS]weather[ARGS]{"city": "Oslo", "days": 3}',
        '[{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}]',
        "<function=weather><parameter=city>Oslo</parameter><parameter=days>3</parameter></function>",
    ],
)
def test_each_form_is_a_call(text: str) -> None:
    assert read(text) == ("", [("weather", OSLO)])


def test_values_that_are_written_as_text_become_what_the_schema_says() -> None:
    assert read(CODER) == ("", [("weather", {**OSLO, "unit": None, "only": [1, 2]})])
    unfit = "<function=weather><parameter=days>soon</parameter><parameter=new>3</parameter></function>"
    assert read(unfit) == ("", [("weather", {"days": "soon", "new": "3"})])


def test_what_stands_around_calls_stays_text() -> None:
    both = f'I look it up.\n\n{HERMES}\n<tool_call>{{"name": "stop"}}</tool_call>'
    assert read(both) == ("I look it up.", [("weather", OSLO), ("stop", {})])
    listed = '[{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}, {"name": "stop", "arguments": {}}]'
    assert read(listed) == ("", [("weather", OSLO), ("stop", {})])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Oslo is cold.",
        '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": {"city": "Os</tool_call>',
        '{"name": "weather", "parameters": {"city": "Oslo"}} and more',
        '[{"name": "weather", "arguments": {}}, 3]',
        "[TOOL_CALLS]weather",
        "<function=other></function>",
        "<function=weather><parameter=city>Oslo",
        "[" * 100_000,
        "[]",
    ],
)
def test_what_is_no_call_stays_as_it_is(text: str) -> None:
    assert calls_in(text, TOOLS) == (text, [])


def test_a_text_of_json_is_calls_or_is_none() -> None:
    assert listed_calls('[{"name":"stop","arguments":{}}]', TOOLS) == [Call("stop", "{}")]
    assert listed_calls('[{"name":"stop","argum', TOOLS) == []


@pytest.mark.parametrize(
    ("text", "first", "place"),
    [
        ("Hello there", True, 11),
        ("Hello ", True, 5),
        ("Hello <", False, 5),
        ("Hello <tool", True, 5),
        ("a <b> c", True, 7),
        ("Hi.\n<tool_call>{", False, 3),
        ("Hi [TOOL_CALLS", False, 2),
        ('{"na', True, 0),
        ('{"na', False, 4),
        (" [ {", True, 0),
        ("[1]", True, 3),
        ("{x}", True, 3),
        ("", True, 0),
    ],
)
def test_a_text_is_held_from_where_a_call_may_begin(text: str, first: bool, place: int) -> None:
    assert begins(text, first=first) == place
