"""Whether a grammar can be kept, found out before a job is queued. No torch: the compiler is `llguidance`, in Rust.

The worker locks the output by the same library, so what passes here compiles there. What that library would leave out
in silence is refused by name before it is asked (`catalog.jsonschema`).
"""

from __future__ import annotations

from typing import Any

import orjson

from catalog.errors import InvalidOption
from catalog.jsonschema import fault_of, subschemas
from catalog.options.generate import Grammar

MOST_BYTES = 2**20
"""A larger JSON schema is refused."""

_FIELD = "options.grammar"
_TRIES = 200
_TRIED_BYTES = 8 * MOST_BYTES
"""How far the part of a schema is looked for that the compiler refuses."""


def check_grammar(grammar: Grammar) -> None:
    """Raise InvalidOption that names the part of a grammar that is wrong or not supported, by its path."""
    if grammar.json_schema is not None:
        _check_schema(grammar.json_schema)
    elif grammar.regex is not None:
        _check_text("regex", grammar.regex)
    elif grammar.lark is not None:
        if "%json" in grammar.lark:
            raise InvalidOption(
                "A JSON schema goes under 'json_schema', not into a Lark grammar.", param=_place("lark")
            )
        _check_text("lark", grammar.lark)


def check_shape(schema: object, param: str) -> None:
    """Raise InvalidOption if a JSON schema is none; which keywords it has is for others to say."""
    fault = fault_of(schema, locked=False)
    if fault is not None:
        raise _refused(param, *fault)


def _check_schema(schema: dict[str, Any] | bool) -> None:
    param = _place("json_schema")
    fault = fault_of(schema, locked=True)
    if fault is not None:
        raise _refused(param, *fault)
    written = orjson.dumps(schema)
    if len(written) > MOST_BYTES:
        raise InvalidOption(f"A JSON schema has at most {MOST_BYTES} bytes; this one has {len(written)}.", param=param)
    said = _compile("json_schema", written.decode())
    if said is not None:
        raise _refused(param, _narrowed(schema, said) if isinstance(schema, dict) else "", f"cannot be kept: {said}")


def _narrowed(schema: dict[str, Any], said: str) -> str:
    """The path of the smallest part of which the compiler says the same, as far as a few tries tell."""
    shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    found, tries, tried = "", 0, 0
    for where, part in subschemas(schema):
        # Parts come before what is in them, so the next that fails is inside the last that did.
        if not where or not isinstance(part, dict) or not where.startswith(found):
            continue
        written = orjson.dumps({**shared, **part})
        tries, tried = tries + 1, tried + len(written)
        if tries > _TRIES or tried > _TRIED_BYTES:
            break
        if _compile("json_schema", written.decode()) == said:
            found = where
    return found


def _check_text(kind: str, text: str) -> None:
    said = _compile(kind, text)
    if said is not None:
        raise _refused(_place(kind), "", f"cannot be kept: {said}")


def _compile(kind: str, text: str) -> str | None:
    """What the compiler has against a grammar; None if nothing."""
    from llguidance import LLMatcher

    try:
        match kind:
            case "json_schema":
                made = LLMatcher.grammar_from_json_schema(text)
            case "regex":
                made = LLMatcher.grammar_from_regex(text)
            case _:
                made = LLMatcher.grammar_from_lark(text)
        _, told = LLMatcher.validate_grammar_with_warnings(made)
    except ValueError as error:
        told = [str(error)]
    return " ".join(str(told[0]).split())[:300] if told else None


def _place(kind: str) -> str:
    return f"{_FIELD}.{kind}"


def _refused(param: str, where: str, said: str) -> InvalidOption:
    place = (f"{param}.{where}" if where else param)[:300]
    return InvalidOption(f"{place!r} {said}.", param=place)
