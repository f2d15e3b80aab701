"""The shape of a JSON schema, and which of its keywords an output can be held to. Pure.

Draft 2020-12 and the older `definitions`. A fault is told with its place, as in `properties.age.minimum`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

Fault = tuple[str, str]
"""Where, as a path inside the schema, and what is wrong there."""

TYPES = ("null", "boolean", "object", "array", "number", "string", "integer")


def _schema(value: object) -> str | None:
    return None if isinstance(value, dict | bool) else "must be a schema: an object, true or false"


def _schemas(value: object) -> str | None:
    return None if isinstance(value, list) and value else "must be a list of at least one schema"


def _named(value: object) -> str | None:
    return None if isinstance(value, dict) else "must be an object with a schema for each name"


def _text(value: object) -> str | None:
    return None if isinstance(value, str) else "must be a text"


def _count(value: object) -> str | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return None if whole and 0 <= value <= 2**31 else "must be a whole number from 0 to 2147483648"  # type: ignore[operator]


def _number(value: object) -> str | None:
    right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return None if right else "must be a number"


def _step(value: object) -> str | None:
    return _number(value) or (None if value > 0 else "must be more than 0")  # type: ignore[operator]


def _texts(value: object) -> str | None:
    right = isinstance(value, list) and all(isinstance(one, str) for one in value) and len(set(value)) == len(value)
    return None if right else "must be a list of texts, each once"


def _type(value: object) -> str | None:
    found = value if isinstance(value, list) else [value]
    right = found and all(isinstance(one, str) and one in TYPES for one in found) and len(set(found)) == len(found)
    return None if right else f"must be one of {', '.join(TYPES)}, or a list of them"


def _values(value: object) -> str | None:
    return None if isinstance(value, list) and value else "must be a list of at least one value"


def _anything(value: object) -> str | None:
    return None


NOTES = dict.fromkeys(
    ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema"],
    _anything,
)
"""Keywords that hold an output to nothing, by what they mean."""

KEPT: Mapping[str, Callable[[object], str | None]] = {
    "type": _type,
    "enum": _values,
    "const": _anything,
    "allOf": _schemas,
    "anyOf": _schemas,
    "oneOf": _schemas,
    "$ref": _text,
    "$defs": _named,
    "definitions": _named,
    "properties": _named,
    "patternProperties": _named,
    "additionalProperties": _schema,
    "required": _texts,
    "minProperties": _count,
    "maxProperties": _count,
    "prefixItems": _schemas,
    "items": _schema,
    "minItems": _count,
    "maxItems": _count,
    "minimum": _number,
    "maximum": _number,
    "exclusiveMinimum": _number,
    "exclusiveMaximum": _number,
    "multipleOf": _step,
    "minLength": _count,
    "maxLength": _count,
    "pattern": _text,
    "format": _text,
}
"""Keywords that an output is held to, each with the check of its value."""

_IN_PLACE = ("allOf", "anyOf", "oneOf")


def fault_of(schema: object, *, locked: bool) -> Fault | None:
    """The first fault, or None. `locked` refuses what an output cannot be held to, by the keyword's name.

    A reference must be to a place inside the schema: nothing is fetched. One that leads back to itself without going
    into a value is a fault.
    """
    if schema is False:
        return "", "lets nothing through"
    found = _schema(schema)
    if found is not None:
        return "", found
    leads: dict[int, list[object]] = {}
    places: set[int] = set()
    for where, one in subschemas(schema):
        places.add(id(one))
        fault = _fault_here(where, one, locked=locked)
        if fault is not None:
            return fault
    for where, one in subschemas(schema):
        if not isinstance(one, dict):
            continue
        leads[id(one)] = [inner for name in _IN_PLACE for inner in one.get(name, ())]
        if "$ref" in one:
            target = _resolved(one["$ref"], schema)
            if not isinstance(target, bool) and id(target) not in places:
                return _joined(where, "$ref"), "must lead to a schema inside this one, such as '#/$defs/name'"
            leads[id(one)].append(target)
    return _endless(schema, leads) if locked else None


def subschemas(schema: object, where: str = "") -> Iterator[tuple[str, object]]:
    """The schema and all in it that are schemas, each with its path. What is no schema is left to who checks."""
    waiting: list[tuple[str, object]] = [(where, schema)]
    while waiting:
        path, one = waiting.pop()
        yield path, one
        if isinstance(one, dict):
            waiting.extend(reversed(list(_children(path, one))))


def _children(where: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in schema.items():
        check, here = KEPT.get(name), _joined(where, name)
        if check is _schema:
            yield here, value
        elif check is _schemas and isinstance(value, list):
            yield from ((f"{here}[{index}]", one) for index, one in enumerate(value))
        elif check is _named and isinstance(value, dict):
            yield from ((_joined(here, key), one) for key, one in value.items())


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _fault_here(where: str, schema: object, *, locked: bool) -> Fault | None:
    if not isinstance(schema, dict):
        found = _schema(schema)
        return None if found is None else (where, found)
    for name, value in schema.items():
        check = KEPT.get(name) or NOTES.get(name)
        if check is None and locked and not (name == "$id" and not where):
            return _joined(where, name), "is not supported: an output cannot be held to it"
        if check is not None and (said := check(value)) is not None:
            return _joined(where, name), said
    return None


def _resolved(reference: str, root: object) -> object | None:
    """What a reference points to; None unless it is a pointer to something in here."""
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return None
    found = root
    for part in unquote(reference[2:]).split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isascii() and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


def _endless(root: object, leads: Mapping[int, list[object]]) -> Fault | None:
    """A schema that leads back to itself in the same place of a value."""
    done: set[int] = set()
    for where, start in subschemas(root):
        under_way: list[tuple[int, Iterator[object]]] = [(id(start), iter(leads.get(id(start), ())))]
        open_: set[int] = {id(start)}
        while under_way and under_way[0][0] not in done:
            node, following = under_way[-1]
            step = next(following, None)
            if step is None:
                under_way.pop()
                open_.discard(node)
                done.add(node)
            elif id(step) in open_ and isinstance(step, dict):
                return where, "leads back to itself without an end"
            elif id(step) not in done and isinstance(step, dict):
                open_.add(id(step))
                under_way.append((id(step), iter(leads.get(id(step), ()))))
    return None
