"""The weightless model: it has no library, so nothing to be compared with."""

from __future__ import annotations

from pathlib import Path

from catalog.loader import Catalog
from catalog.schema import Spec
from catalog.terms import Verb
from tests.adapters.case import Case, Payload


def model() -> tuple[Spec, Path | None]:
    return Catalog.load().find("roost/fake").spec, None


def items() -> list[Payload]:
    return [{"text": f"text number {i} " * (i * 3 % 7 + 1)} for i in range(10)]


def pairs() -> list[Payload]:
    return [{**item, "query": {"text": "a number"}} for item in items()]


def names() -> list[Payload]:
    return [{"text": f"{i} letters from Ada to \U0001d400lan " * (i + 1)} for i in range(10)]


CASES = [
    Case(
        name="encode",
        model=model,
        verb=Verb.ENCODE,
        items=items,
        load={"bytes": 64 * 2**20, "allocate": True},
        bad=({}, {"text": 7}),
        why_no_reference="this family has no library of its own",
    ),
    Case(
        name="score",
        model=model,
        verb=Verb.SCORE,
        items=pairs,
        bad=({"query": {"text": "q"}}, {"text": 7, "query": {"text": "q"}}),
        why_no_reference="this family has no library of its own",
    ),
    Case(
        name="extract",
        model=model,
        verb=Verb.EXTRACT,
        items=names,
        options={"labels": ["person", "place"]},
        bad=({}, {"text": 7}),
        why_no_reference="this family has no library of its own",
    ),
]
