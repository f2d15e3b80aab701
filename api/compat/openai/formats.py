"""What form an answer is to have: a text, any JSON object, or JSON by a schema. The last two are kept by a grammar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from catalog.errors import suggestion
from tasks.errors import InvalidRequest

OBJECT: Mapping[str, Any] = {"type": "object"}

_TYPES = ("text", "json_object", "json_schema")
_SCHEMA = ("name", "schema", "strict", "description")


@dataclass(frozen=True, slots=True)
class Locked:
    """The options of `generate` that keep the form, and how a fault in them is called in the caller's body."""

    options: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


def locked(given: Mapping[str, Any] | None, where: str, inside: str = "") -> Locked:
    """The lock of a format that stands at `where`, with what describes a schema under `inside`.

    A schema is kept to whether it is `strict` or not. Raises InvalidRequest, which names the field.
    """
    if given is None:
        return Locked()
    kind = given.get("type")
    if kind not in _TYPES:
        hint = suggestion(kind, _TYPES) if isinstance(kind, str) else "."
        raise InvalidRequest(f"'{where}.type' must be {_listed()}{hint}", param=f"{where}.type")
    own = () if kind != "json_schema" else (inside,) if inside else _SCHEMA
    _check_names(given, ("type", *own), where)
    names = {"options.grammar.json_schema": where, "options.grammar": where}
    if kind == "text":
        return Locked()
    if kind == "json_object":
        return Locked({"grammar": {"json_schema": dict(OBJECT)}}, names)
    place = f"{where}.{inside}" if inside else where
    described = given.get(inside) if inside else given
    if not isinstance(described, dict):
        raise InvalidRequest(f"{place!r} must be an object with 'name' and 'schema'.", param=place)
    if inside:
        _check_names(described, _SCHEMA, place)
    schema = described.get("schema")
    if not isinstance(schema, dict | bool):
        raise InvalidRequest(f"'{place}.schema' must be a JSON schema.", param=f"{place}.schema")
    names["options.grammar.json_schema"] = f"{place}.schema"
    return Locked({"grammar": {"json_schema": schema}}, names)


def _check_names(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in given:
        if name not in known:
            raise InvalidRequest(
                f"Unknown field {name[:100]!r}{suggestion(name, known)}", param=f"{where}.{name}"[:200]
            )


def _listed() -> str:
    return f"{', '.join(map(repr, _TYPES[:-1]))} or {_TYPES[-1]!r}"
