"""The weightless parser; what it promises besides is in tests/unit/engine/adapters."""

from __future__ import annotations

from pathlib import Path

from catalog.schema import ExtractFacts, ExtractKind, Spec, Tasks
from catalog.terms import Verb
from tests.adapters.case import Case, Payload


def model() -> tuple[Spec, Path | None]:
    tasks = Tasks(extract=ExtractFacts(kinds=(ExtractKind.DOCUMENT,)))
    return Spec(id="p", family="fake_parser", tasks=tasks, parameters=0, max_length=64, unit="pages"), None


def items() -> list[Payload]:
    return [{"text": f"page {i}\f" * (i * 3 % 7 + 1)} for i in range(10)]


CASES = [
    Case(
        name="extract",
        model=model,
        verb=Verb.EXTRACT,
        items=items,
        load={"bytes": 1000},
        bad=({}, {"text": 7}),
        why_no_reference="this family has no library of its own",
    )
]
