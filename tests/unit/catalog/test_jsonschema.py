"""The shape of JSON schemas, held against a validator of them, and what no output can be held to."""

from __future__ import annotations

import time
from functools import reduce
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from catalog.jsonschema import fault_of

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"type": "strng"}, "type"),
    ({"type": []}, "type"),
    ({"type": ["string", "string"]}, "type"),
    ({"type": ["string", 3]}, "type"),
    ({"properties": ["a"]}, "properties"),
    ({"properties": {"a": 3}}, "properties.a"),
    ({"properties": {"a": {"items": [{}]}}}, "properties.a.items"),
    ({"patternProperties": {"^a": None}}, "patternProperties.^a"),
    ({"additionalProperties": "no"}, "additionalProperties"),
    ({"required": "a"}, "required"),
    ({"required": ["a", "a"]}, "required"),
    ({"items": {"minimum": "1"}}, "items.minimum"),
    ({"prefixItems": []}, "prefixItems"),
    ({"prefixItems": [{}, {"maxItems": -1}]}, "prefixItems[1].maxItems"),
    ({"allOf": []}, "allOf"),
    ({"anyOf": {}}, "anyOf"),
    ({"anyOf": [{}, 3]}, "anyOf[1]"),
    ({"oneOf": [{"minLength": 1.5}]}, "oneOf[0].minLength"),
    ({"minProperties": True}, "minProperties"),
    ({"exclusiveMaximum": True}, "exclusiveMaximum"),
    ({"multipleOf": 0}, "multipleOf"),
    ({"multipleOf": "2"}, "multipleOf"),
    ({"pattern": 3}, "pattern"),
    ({"format": ["date"]}, "format"),
    ({"enum": "abc"}, "enum"),
    ({"$ref": 3}, "$ref"),
    ({"$defs": {"a": {"type": "colour"}}}, "$defs.a.type"),
]


@pytest.mark.parametrize(("schema", "where"), WRONG)
def test_what_is_no_schema_is_told_with_its_place(schema: dict[str, Any], where: str) -> None:
    with pytest.raises(SchemaError):
        Draft202012Validator.check_schema(schema)
    for locked in (True, False):
        found = fault_of(schema, locked=locked)
        assert found is not None
        assert found[0] == where


RIGHT: list[dict[str, Any] | bool] = [
    {},
    True,
    {"type": ["string", "null"], "title": "t", "description": "d", "default": 1, "examples": [1], "$comment": "c"},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://a.b/c", "deprecated": True},
    {"properties": {"type": {"type": "string"}, "$ref": {"type": "string"}, "x-foo": {}}, "required": []},
    {"properties": {"a": False}, "additionalProperties": False, "items": False, "prefixItems": [True]},
    {"const": {"type": "colour"}, "enum": [{"minimum": "x"}], "default": {"$ref": "#/none"}},
    {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "integer"}}},
    {"$ref": "#/definitions/a", "definitions": {"a": {"type": "integer"}}},
    {"properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]},
    {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}},
]


@pytest.mark.parametrize("schema", RIGHT)
def test_what_is_a_schema_passes(schema: dict[str, Any] | bool) -> None:
    Draft202012Validator.check_schema(schema)
    assert fault_of(schema, locked=True) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"uniqueItems": True},
        {"not": {"type": "string"}},
        {"contains": {"type": "string"}},
        {"propertyNames": {"pattern": "^a"}},
        {"if": {}, "then": {}},
        {"dependentRequired": {"a": ["b"]}},
        {"unevaluatedProperties": False},
        {"contentMediaType": "text/html"},
        {"nullable": True},
        {"x-foo": 1},
        {"minlength": 3},
        {"$anchor": "a"},
        {"$dynamicRef": "#a"},
        {"additionalItems": False},
        {"x-guidance": {"lenient": True}},
    ],
)
def test_a_keyword_that_holds_no_output_is_refused_by_name_wherever_it_is(schema: dict[str, Any]) -> None:
    name = next(iter(schema))
    assert fault_of(schema, locked=False) is None
    for inside, where in (
        (schema, name),
        ({"properties": {"a": schema}}, f"properties.a.{name}"),
        ({"anyOf": [{}, {"items": schema}]}, f"anyOf[1].items.{name}"),
        ({"$defs": {"a": schema}}, f"$defs.a.{name}"),
    ):
        found = fault_of(inside, locked=True)
        assert found is not None
        assert found[0] == where
        assert "not supported" in found[1]


@pytest.mark.parametrize(
    "reference",
    [
        "/$defs/a",
        "https://a.b/c",
        "https://a.b/c#/$defs/a",
        "other.json",
        "a",
        "#a",
        "#/$defs/b",
        "#/$defs",
        "#/$defs/a/type",
        "#/anyOf/3",
        "",
    ],
)
def test_a_reference_must_lead_to_a_schema_inside(reference: str) -> None:
    schema = {"anyOf": [{"$ref": reference}], "$defs": {"a": {"type": "string"}}}
    assert fault_of(schema, locked=True) == (
        "anyOf[0].$ref",
        "must lead to a schema inside this one, such as '#/$defs/name'",
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"type": "string"}, {"$ref": "#"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
    ],
)
def test_a_schema_that_leads_to_itself_without_an_end_is_refused(schema: dict[str, Any]) -> None:
    found = fault_of(schema, locked=True)
    assert found is not None
    assert "without an end" in found[1]


def test_nothing_and_what_is_no_object_are_refused() -> None:
    assert fault_of(False, locked=True) == ("", "lets nothing through")
    assert fault_of([], locked=True) == ("", "must be a schema: an object, true or false")


def test_many_references_to_one_place_are_followed_once() -> None:
    links: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(1000)}
    links["d1000"] = {"type": "string"}
    schema = {"$ref": "#/$defs/d0", "$defs": links}
    start = time.process_time()
    assert fault_of(schema, locked=True) is None
    assert time.process_time() - start < 1.0


def test_a_deep_schema_takes_no_stack() -> None:
    inmost: Any = {"type": "strng"}
    deep = reduce(lambda inner, _: {"items": inner}, range(5000), inmost)
    found = fault_of(deep, locked=True)
    assert found is not None
    assert found[0].endswith("items.type")
