"""The weightless generator; what it promises besides is in tests/unit/engine/adapters."""

from __future__ import annotations

from pathlib import Path

from catalog.schema import GenerateFacts, Spec, Tasks
from catalog.terms import Verb
from tests.adapters.case import Case, Payload


def model() -> tuple[Spec, Path | None]:
    tasks = Tasks(generate=GenerateFacts(max_new_tokens=8))
    return Spec(id="g", family="fake_generator", tasks=tasks, parameters=0, max_length=4096), None


def items() -> list[Payload]:
    return [{"text": f"prompt number {i} " * (i * 3 % 7 + 1)} for i in range(10)]


CASES = [
    Case(
        name="generate",
        model=model,
        verb=Verb.GENERATE,
        items=items,
        load={"bytes": 1000, "new_tokens": 8},
        bad=({}, {"text": 7}, {"text": "  "}),
        why_no_reference="this family has no library of its own",
    )
]
