"""The peer's grammars as ours: its EBNF becomes a Lark grammar. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.errors import InvalidOption, suggestion

MOST_CHARS = 8192
MOST_RULES = 128
"""Of an EBNF: the translator takes seconds for a long chain of rules, and within both at most 0.3 s."""

_KINDS = ("json_schema", "regex", "ebnf")
_KNOWN = (*_KINDS, "label", "strict")


def native_grammar(value: Any, where: str = "grammar") -> tuple[dict[str, Any], dict[str, str]]:
    """The native grammar, and how errors name its parts. Raises InvalidOption.

    `label` is a name and `strict` is always so: neither changes anything.
    """
    if not isinstance(value, dict):
        raise InvalidOption(f"{where!r} must be an object.", param=where)
    for name in value:
        if name not in _KNOWN:
            hint = suggestion(str(name), _KNOWN, f"; it takes: {', '.join(_KNOWN)}.")
            raise InvalidOption(f"Unknown field {str(name)[:100]!r}{hint}", param=f"{where}.{str(name)[:100]}")
    kinds = [name for name in _KINDS if value.get(name) is not None]
    if len(kinds) != 1:
        raise InvalidOption(f"{where!r} must have exactly one of: {', '.join(_KINDS)}.", param=where)
    _check_kind(value, "label", str, where)
    _check_kind(value, "strict", bool, where)
    kind = kinds[0]
    names = {"options.grammar": where}
    if kind == "ebnf":
        return {"lark": _lark(value["ebnf"], f"{where}.ebnf")}, {**names, "options.grammar.lark": f"{where}.ebnf"}
    return {kind: value[kind]}, names


def has_grammar(body: object) -> bool:
    """Whether a request, or its options, may have a grammar to translate: then read it in a thread."""
    if not isinstance(body, Mapping):
        return False
    options = body.get("options")
    return "grammar" in body or (isinstance(options, Mapping) and "grammar" in options)


def _check_kind(value: Mapping[str, Any], name: str, kind: type, where: str) -> None:
    if value.get(name) is not None and not isinstance(value[name], kind):
        said = "a text" if kind is str else "true or false"
        raise InvalidOption(f"'{where}.{name}' must be {said}.", param=f"{where}.{name}")


def _lark(text: Any, where: str) -> str:
    """The grammar in Lark's form, whose first rule is `start` and not `root`."""
    if not isinstance(text, str) or not text:
        raise InvalidOption(f"{where!r} must be a text that is not empty.", param=where)
    rules = text.count("::=")
    if not rules:
        return text
    if len(text) > MOST_CHARS or rules > MOST_RULES:
        raise InvalidOption(
            f"{where!r} has {len(text)} characters and {rules} rules; EBNF may have {MOST_CHARS} and {MOST_RULES}. "
            "Send a larger grammar in Lark's form.",
            param=where,
        )
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        made: str = gbnf_to_lark(text)
    except Exception as error:  # noqa: BLE001 - it raises what comes to hand, bare exceptions among them
        said = " ".join(str(error).split())[:200]
        raise InvalidOption(f"{where!r} cannot be read: {said or type(error).__name__}.", param=where) from None
    return made
