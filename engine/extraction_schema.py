"""What `output_schema` asks of a model that fills structures: its own form, or a plain JSON Schema. Pure.

A JSON Schema of one object becomes structures: the object's own simple fields are one, and each field that is an object
or a list of objects is another. What a model that copies pieces of a text cannot promise is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NATIVE = ("entities", "structures", "classifications", "relations", "entity_attributes")
_RESULTS = ("entities", "relation_extraction")
"""What the library's results call other things."""
_NOTES = {"$schema", "$id", "$comment", "title", "description", "examples", "default", "deprecated"}
_SCALARS = ("string", "integer", "number", "boolean")
_NUMBER = re.compile(r"[^\d+-]*+([+-]?\d[\d,]*+(?:\.\d++)?+)\D*+")


class SchemaRefused(ValueError):
    """The schema asks for what cannot be given; the message names the part and where it is."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an object: how its values are read, and whether there may be many."""

    name: str
    type: str
    many: bool


@dataclass(frozen=True, slots=True)
class Part:
    """A structure of the model's and what it becomes: the object itself (`name` None), or a field of it."""

    structure: str
    name: str | None
    many: bool
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A schema as the model's library reads it; `parts` says how a JSON Schema's object is made of what it found."""

    native: Mapping[str, Any]
    parts: tuple[Part, ...] | None = None


def read_schema(schema: Mapping[str, Any]) -> Asked:
    """Any of the forms: the library's own, its short one (`{"person": ["name::str"]}`), or a JSON Schema.

    Raises SchemaRefused.
    """
    if "properties" in schema or "type" in schema or any(str(key).startswith("$") for key in schema):
        return _read_json_schema(schema)
    if not schema:
        raise SchemaRefused("the schema is empty")
    if all(isinstance(fields, list) and key not in NATIVE for key, fields in schema.items()):
        return Asked({"structures": {key: {"fields": _short(fields, key)} for key, fields in schema.items()}})
    return Asked(dict(schema))


def _short(fields: Sequence[object], name: str) -> list[dict[str, Any]]:
    return [_short_field(one, f"{name}[{index}]") for index, one in enumerate(fields)]


def _short_field(one: object, where: str) -> dict[str, Any]:
    """A field of the short form: `name::type::[a|b]::description`, all but the name left out at will."""
    if isinstance(one, Mapping):
        return dict(one)
    if not isinstance(one, str) or not one:
        raise SchemaRefused(f"{where} is neither a field's name nor its description")
    name, *rest = one.split("::")
    field: dict[str, Any] = {"name": name}
    for part in rest:
        if part in ("str", "list"):
            field["dtype"] = part
        elif part.startswith("[") and part.endswith("]"):
            field["choices"] = [choice.strip() for choice in part[1:-1].split("|")]
            field.setdefault("dtype", "str")
        else:
            field["description"] = part
    return field


def _read_json_schema(schema: Mapping[str, Any]) -> Asked:
    if _type(schema, "") != "object":
        raise SchemaRefused("'type' of the whole must be 'object'")
    title = schema.get("title")
    properties = _properties(schema, "")
    own = title if isinstance(title, str) and title and title not in (*properties, *_RESULTS) else "record"
    structures: dict[str, Any] = {}
    parts: list[Part] = []
    simple: list[tuple[Field, dict[str, Any]]] = []
    for name, found in properties.items():
        inner, many = _inner(found, name)
        if _type(inner, name) != "object":
            simple.append(_field(name, inner, many, name))
            continue
        fields = []
        for below, leaf in _properties(inner, name).items():
            where = f"{name}.{below}"
            value, several = _inner(leaf, where)
            if _type(value, where) == "object":
                raise SchemaRefused(f"{where!r} is an object inside an object inside the whole; one level is read")
            fields.append(_field(below, value, several, where))
        structure = f"{name} record" if name in _RESULTS else name
        structures[structure] = {"fields": [given for _, given in fields]}
        parts.append(Part(structure, name, many, tuple(field for field, _ in fields)))
    if simple:
        while own in structures:
            own += "_"
        structures[own] = {"fields": [given for _, given in simple]}
        parts.append(Part(own, None, many=False, fields=tuple(field for field, _ in simple)))
    return Asked({"structures": structures}, tuple(parts))


def _inner(schema: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], bool]:
    """What a list's items are, and that it is a list; otherwise the schema itself."""
    if _type(schema, where) != "array":
        return schema, False
    _only(schema, where, {"type", "items"})
    items = schema.get("items")
    if not isinstance(items, Mapping):
        raise SchemaRefused(f"{where!r} is a list and needs 'items', a schema")
    if _type(items, f"{where}[]") == "array":
        raise SchemaRefused(f"{where!r} is a list of lists")
    if "description" in schema and "description" not in items:
        items = {**items, "description": schema["description"]}
    return items, True


def _field(name: str, schema: Mapping[str, Any], many: bool, where: str) -> tuple[Field, dict[str, Any]]:
    """A field of simple values, and how the library is told of it."""
    _only(schema, where, {"type", "enum"})
    kind = _type(schema, where)
    given: dict[str, Any] = {"name": name, "dtype": "list" if many else "str"}
    choices = schema.get("enum")
    if choices is not None:
        if not isinstance(choices, list) or not choices or not all(isinstance(one, str) for one in choices):
            raise SchemaRefused(f"'enum' of {where!r} must be a list of texts")
        given["choices"] = choices
    elif kind == "boolean":
        given["choices"] = ["true", "false"]
    description = schema.get("description")
    if isinstance(description, str) and description:
        given["description"] = description
    return Field(name, kind, many), given


def _properties(schema: Mapping[str, Any], where: str) -> dict[str, Mapping[str, Any]]:
    _only(schema, where, {"type", "properties", "required", "additionalProperties"})
    if isinstance(schema.get("additionalProperties"), Mapping):
        raise SchemaRefused(f"'additionalProperties' of {where or 'the whole'!r} may not be a schema")
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise SchemaRefused(f"{where or 'the whole'!r} is an object and needs 'properties'")
    for name, one in properties.items():
        if not isinstance(one, Mapping):
            raise SchemaRefused(f"{f'{where}.{name}' if where else name!r} is no schema")
    return dict(properties)


def _type(schema: Mapping[str, Any], where: str) -> str:
    """The type; null beside it is what a field is that is not found, whether the schema says so or not."""
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [one for one in kind if one != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if kind is None and isinstance(schema.get("properties"), Mapping):
        return "object"
    if kind is None and "enum" in schema and "type" not in schema:
        return "string"
    if kind not in ("object", "array", *_SCALARS):
        raise SchemaRefused(f"'type' of {where or 'the whole'!r} must be one of object, array, {', '.join(_SCALARS)}")
    return str(kind)


def _only(schema: Mapping[str, Any], where: str, known: set[str]) -> None:
    for key in schema:
        if key not in known and key not in _NOTES:
            raise SchemaRefused(f"{str(key)[:60]!r} of {where or 'the whole'!r} is not supported")


def shape(asked: Asked, found: Mapping[str, Any]) -> dict[str, Any]:
    """The object of a JSON Schema, by the instances found of each structure: `{structure: [{field: value}]}`.

    A field that was not found is None, a list that was not is empty. Of several instances of what there is one of,
    each field has its first value.
    """
    whole: dict[str, Any] = {}
    for part in asked.parts or ():
        instances = [one for one in _listed(found.get(part.structure)) if isinstance(one, Mapping)]
        made = [{field.name: _value(field, one.get(field.name)) for field in part.fields} for one in instances]
        if part.many and part.name is not None:
            whole[part.name] = made
            continue
        first = {field.name: _first(field, made) for field in part.fields}
        if part.name is None:
            whole.update(first)
        else:
            whole[part.name] = first if made else None
    return whole


def _first(field: Field, made: Sequence[Mapping[str, Any]]) -> Any:
    values = [one[field.name] for one in made]
    return next((value for value in values if value not in (None, [])), [] if field.many else None)


def _value(field: Field, value: Any) -> Any:
    if field.many:
        return [one for one in (_read(field.type, text) for text in _listed(value)) if one is not None]
    return next((one for one in (_read(field.type, text) for text in _listed(value)) if one is not None), None)


def _read(kind: str, text: Any) -> Any:
    """A value of its type out of a piece of text; None where the text is none."""
    if not isinstance(text, str):
        return None
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.lower())
    if kind in ("integer", "number"):
        match = _NUMBER.fullmatch(text)
        if match is None:
            return None
        number = float(match[1].replace(",", ""))
        if number.is_integer() and (kind == "integer" or "." not in match[1]):
            return int(number)
        return None if kind == "integer" else number
    return text


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
