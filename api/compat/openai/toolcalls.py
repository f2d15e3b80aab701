"""Calls of functions in what a model wrote, in the forms that models are trained on. Pure.

* Hermes and Qwen: `<tool_call>{"name", "arguments"}</tool_call>`
* Qwen3-Coder and Qwen3.5: `<function=name><parameter=key>value</parameter></function>`
* Llama 3: `{"name", "parameters"}` as the whole text or after `<|python_tag|>`
* Mistral: `[{"name", "arguments"}]` as the whole text or after `[TOOL_CALLS]`, also as `name{...}`

Only functions that the caller described are called; what is not well formed stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

Tools = Mapping[str, Mapping[str, Any]]
"""The JSON schema of the arguments of each function, by the function's name."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function; its arguments are JSON."""

    name: str
    arguments: str


_OPENINGS = ("<tool_call>", "<function=", "<|python_tag|>", "[TOOL_CALLS]")
_BARE = re.compile(r'\s*\[?\s*(\{\s*("\w*("|$)|$)|$)')
"""The beginning of a text that may become a call in JSON without any sign before it."""

_CALL = re.compile(
    r"<tool_call>(?P<tagged>.*?)(?:</tool_call>|\Z)"
    r"|(?P<function><function=.*?(?:</function>|\Z))"
    r"|<\|python_tag\|>(?P<python>.*)"
    r"|\[TOOL_CALLS\](?P<listed>.*)",
    re.DOTALL,
)
_FUNCTION = re.compile(r"<function=(?P<name>[^>\s]+)>(?P<inside>.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=(?P<name>[^>\s]+)>\n?(?P<value>.*?)\n?</parameter>", re.DOTALL)
_NAMED = re.compile(r"(?P<name>[\w.-]+)(?:\[ARGS\])?(?P<inside>\{.*\})", re.DOTALL)


def begins(text: str, *, first: bool) -> int:
    """Where a call may begin in a text that is not over; its length if nowhere. `first`: it is the text's beginning.

    Blanks before that place belong to it.
    """
    if first and _BARE.match(text):
        return 0
    places = [place for opening in _OPENINGS if (place := text.find(opening)) >= 0]
    return len(text[: min(places, default=len(text) - unfinished(text, _OPENINGS))].rstrip())


def unfinished(text: str, signs: Sequence[str]) -> int:
    """How many characters at the end of a text may be the beginning of one of these."""
    most = max(map(len, signs)) - 1
    return next((n for n in range(min(most, len(text)), 0, -1) if any(s.startswith(text[-n:]) for s in signs)), 0)


def calls_in(text: str, tools: Tools) -> tuple[str, list[Call]]:
    """What a whole text says besides its calls, and these. Without any it is the text as it is."""
    if found := listed_calls(text, tools):
        return "", found
    calls: list[Call] = []
    rest, place = "", 0
    for match in _CALL.finditer(text):
        if found := _of_match(match, tools):
            rest += text[place : match.start()]
            place = match.end()
            calls += found
    return ((rest + text[place:]).rstrip(), calls) if calls else (text, [])


def listed_calls(text: str, tools: Tools) -> list[Call]:
    """The calls that are a text of JSON: one or a list of them. None if any of it is anything else."""
    value = _json(text)
    found = [_of_json(one, tools) for one in (value if isinstance(value, list) else [value])]
    calls = [call for call in found if call is not None]
    return calls if len(calls) == len(found) else []


def _of_match(match: re.Match[str], tools: Tools) -> list[Call]:
    inside = next(group for group in match.groups() if group is not None)
    if "<function=" in inside:
        return list(_of_functions(inside, tools))
    if found := listed_calls(inside, tools):
        return found
    named = _NAMED.fullmatch(inside.strip()) if match["listed"] is not None else None
    call = named and _of_json({"name": named["name"], "arguments": named["inside"]}, tools)
    return [call] if call else []


def _of_functions(text: str, tools: Tools) -> Iterator[Call]:
    for match in _FUNCTION.finditer(text):
        if (schema := tools.get(match["name"])) is not None:
            given = {one["name"]: one["value"] for one in _PARAMETER.finditer(match["inside"])}
            yield Call(match["name"], _written({name: _typed(value, name, schema) for name, value in given.items()}))


def _of_json(value: Any, tools: Tools) -> Call | None:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or value["name"] not in tools:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _json(arguments)
    return Call(value["name"], _written(arguments)) if isinstance(arguments, dict) else None


def _typed(value: str, name: str, schema: Mapping[str, Any]) -> Any:
    """The value of a parameter that was written as text: what its schema says that it is, where it can be that."""
    properties = schema.get("properties")
    kinds = set(_kinds(properties.get(name) if isinstance(properties, dict) else None))
    if not kinds or "string" in kinds:
        return None if value == "null" and "null" in kinds else value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _kinds(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    yield from [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else []
    for branch in schema.get("anyOf") or ():
        yield from _kinds(branch)


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _written(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value).decode()
