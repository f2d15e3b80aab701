from __future__ import annotations

import time
from typing import Any

import pytest

from engine.extraction_schema import SchemaRefused, read_schema, shape

ITEM = {
    "type": "object",
    "properties": {"what": {"type": "string"}, "prices": {"type": "array", "items": {"type": "number"}}},
}
CLAIM = {
    "type": "object",
    "title": "claim",
    "properties": {
        "policy": {"type": "string", "description": "number of the policy"},
        "amount": {"type": ["number", "null"]},
        "kind": {"enum": ["water", "fire"]},
        "insured": {"type": "boolean"},
        "rooms": {"type": "array", "items": {"type": "string"}, "description": "rooms that are wet"},
        "owner": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}},
        "items": {"type": "array", "items": ITEM},
    },
    "required": ["policy"],
    "additionalProperties": False,
}


def test_a_json_schema_becomes_structures() -> None:
    native = read_schema(CLAIM).native
    assert set(native["structures"]) == {"claim", "owner", "items"}
    assert native["structures"]["claim"]["fields"] == [
        {"name": "policy", "dtype": "str", "description": "number of the policy"},
        {"name": "amount", "dtype": "str"},
        {"name": "kind", "dtype": "str", "choices": ["water", "fire"]},
        {"name": "insured", "dtype": "str", "choices": ["true", "false"]},
        {"name": "rooms", "dtype": "list", "description": "rooms that are wet"},
    ]
    assert [field["name"] for field in native["structures"]["items"]["fields"]] == ["what", "prices"]


def test_what_was_found_takes_the_schemas_form_and_types() -> None:
    found = {
        "claim": [
            {"policy": None, "amount": "EUR 1,250.50", "kind": "water", "insured": "true", "rooms": ["hall"]},
            {"policy": "A-17", "amount": "9", "kind": None, "insured": None, "rooms": ["cellar"]},
        ],
        "owner": [{"name": "Ada", "age": "none"}],
        "items": [{"what": "sofa", "prices": ["1,000", "some", "2.5"]}, {"what": "lamp", "prices": []}],
    }
    assert shape(read_schema(CLAIM), found) == {
        "policy": "A-17",
        "amount": 1250.5,
        "kind": "water",
        "insured": True,
        "rooms": ["hall"],
        "owner": {"name": "Ada", "age": None},
        "items": [{"what": "sofa", "prices": [1000, 2.5]}, {"what": "lamp", "prices": []}],
    }


def test_what_was_not_found_is_none_and_lists_are_empty() -> None:
    nothing = shape(read_schema(CLAIM), {})
    assert nothing == {
        "policy": None,
        "amount": None,
        "kind": None,
        "insured": None,
        "rooms": [],
        "owner": None,
        "items": [],
    }


def test_names_that_the_librarys_results_use_themselves_are_kept_apart() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "title": "entities",
        "properties": {
            "entities": {"type": "object", "properties": {"a": {"type": "string"}}},
            "record": {"type": "object", "properties": {"b": {"type": "string"}}},
            "c": {"type": "string"},
        },
    }
    asked = read_schema(schema)
    assert "entities" not in asked.native["structures"]
    assert len(asked.native["structures"]) == 3
    assert set(shape(asked, {})) == {"entities", "record", "c"}


def test_the_librarys_own_forms_pass() -> None:
    native = {"structures": {"a": {"fields": [{"name": "b"}]}}, "entities": ["c"]}
    assert read_schema(native).native == native
    short = read_schema({"person": ["name::str::full name", "roles", "sex::[f|m]", {"name": "age"}]}).native
    assert short["structures"]["person"]["fields"] == [
        {"name": "name", "dtype": "str", "description": "full name"},
        {"name": "roles"},
        {"name": "sex", "choices": ["f", "m"], "dtype": "str"},
        {"name": "age"},
    ]


def leaf(**parts: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": parts}}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({}, "empty"),
        ({"type": "array", "items": {"type": "string"}}, "'object'"),
        ({"type": "object"}, "needs 'properties'"),
        ({"$ref": "#/x"}, "'type'"),
        (leaf(type="string", pattern="x"), "'pattern' of 'a'"),
        (leaf(type="string", format="date"), "'format' of 'a'"),
        (leaf(anyOf=[{"type": "string"}]), "'type' of 'a'"),
        (leaf(type=["string", "integer"]), "'type' of 'a'"),
        (leaf(type="number", minimum=0), "'minimum' of 'a'"),
        (leaf(enum=[1, 2]), "'enum' of 'a'"),
        (leaf(type="array"), "needs 'items'"),
        (leaf(type="array", items={"type": "string"}, minItems=1), "'minItems' of 'a'"),
        (leaf(type="array", items={"type": "array", "items": {"type": "string"}}), "list of lists"),
        (leaf(type="object", properties={"b": {"type": "object", "properties": {"c": {"type": "string"}}}}), "'a.b'"),
        (leaf(type="object", properties={"b": {"type": "string", "maxLength": 3}}), "'maxLength' of 'a.b'"),
        ({**leaf(type="string"), "additionalProperties": {"type": "string"}}, "'additionalProperties'"),
        ({**leaf(type="string"), "allOf": []}, "'allOf' of 'the whole'"),
        ({"person": [3]}, r"person\[0\]"),
    ],
)
def test_what_cannot_be_promised_is_refused_by_its_name(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaRefused, match=said):
        read_schema(schema)


def test_a_number_is_sought_once_in_a_long_value() -> None:
    begun = time.process_time()
    found = shape(read_schema(ITEM), {"record": [{"prices": ["1" + "," * 60_000 + "a1", "2"]}]})
    assert [2] in [value for whole in (found, *found.values()) if isinstance(whole, dict) for value in whole.values()]
    assert time.process_time() - begun < 5
