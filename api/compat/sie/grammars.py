"""The peer's grammars as ours: its EBNF becomes a Lark grammar. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.errors import InvalidOption, nearest

MOST_CHARS = 100_000

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
            close = nearest(str(name), _KNOWN, 1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; it takes: {', '.join(_KNOWN)}."
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


def _check_kind(value: Mapping[str, Any], name: str, kind: type, where: str) -> None:
    if value.get(name) is not None and not isinstance(value[name], kind):
        said = "a text" if kind is str else "true or false"
        raise InvalidOption(f"'{where}.{name}' must be {said}.", param=f"{where}.{name}")


def _lark(text: Any, where: str) -> str:
    """The grammar in Lark's form, whose first rule is `start` and not `root`."""
    if not isinstance(text, str) or not text or len(text) > MOST_CHARS:
        raise InvalidOption(f"{where!r} must be a text of at most {MOST_CHARS} characters.", param=where)
    if "::=" not in text:
        return text
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        made: str = gbnf_to_lark(text)
    except Exception as error:  # noqa: BLE001 - it raises what comes to hand, bare exceptions among them
        said = " ".join(str(error).split())[:200]
        raise InvalidOption(f"{where!r} cannot be read: {said or type(error).__name__}.", param=where) from None
    return made
