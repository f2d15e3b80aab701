"""A blank text of an extraction: nothing is found in it, and it takes nothing from what is beside it."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Case, agree
from tests.adapters.conftest import answers, build, cases_of

FAMILIES = ("gliclass", "gliner", "gliner2", "glirel", "sequence_classifier", "token_classifier", "zero_shot_nli")
CASES = [
    pytest.param(case, id=f"{family}-{case.name}")
    for family in FAMILIES
    for case in cases_of(family)
    if case.verb is Verb.EXTRACT
]
FINDINGS = ("entities", "relations", "classifications", "objects")


def values(data: Any) -> list[Any]:
    """What a structure holds that was found: all but empty lists and None."""
    if isinstance(data, dict):
        return [value for one in data.values() for value in values(one)]
    if isinstance(data, list):
        return [value for one in data for value in values(one)]
    return [] if data is None else [data]


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_found_in_a_blank_text(case: Case) -> None:
    adapter = build(case)
    adapter.load()
    try:
        whole = case.items()[0]
        assert "text" in whole
        beside = {**whole, "text": " \n\t"} | ({"entities": []} if "entities" in whole else {})
        alone, *_ = answers(adapter, case, [whole])
        *blanks, other = answers(adapter, case, [beside, {**beside, "text": "\u3000"}, whole])
        for blank in blanks:
            assert isinstance(blank, Output), blank
            lists = [blank.fields[name] for name in FINDINGS if name in blank.fields]
            assert lists or "data" in blank.fields
            assert not any(lists)
            assert not values(blank.fields.get("data"))
        assert isinstance(other, Output)
        assert isinstance(alone, Output)
        assert agree(case.found(alone), case.found(other), case.tolerance) is None
    finally:
        adapter.unload()
