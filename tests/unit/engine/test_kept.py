"""A text is held against its schema in time that grows with the text, whatever the schema's patterns are."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from engine.kept import keeps

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Bob"]}, "old": {"type": "boolean"}},
    "required": ["name", "old"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{"name":"Ada","old":true}', True),
        ('{\n    "name": "Ada",\n    "old": true\n}\n', True),
        ('{"name":"Adx","old":true}', False),
        ('{"name":"Ada"}', False),
        ('{"name":"Ada","old":true', False),
        ("", False),
        ("prose", False),
        ('{"name":"Ada","old":true} and more', False),
    ],
)
def test_what_keeps_to_a_schema(text: str, kept: bool) -> None:
    assert keeps(PERSON, text) is kept


@pytest.mark.parametrize("schema", [True, {}])
def test_any_json_keeps_to_a_schema_that_asks_nothing(schema: dict[str, Any] | bool) -> None:
    assert keeps(schema, '{"a": [1, "two", null]}')


def test_a_pattern_that_backtracks_takes_no_time() -> None:
    name = "a" * 40 + "c"
    schema = {
        "type": "object",
        "properties": {name: {"const": 1}},
        "required": [name],
        "patternProperties": {"^(a+)+$": {}},
    }
    begun = time.process_time()
    assert keeps(schema, json.dumps({name: 1}))
    assert time.process_time() - begun < 5
