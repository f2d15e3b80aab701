"""docs/job-states.md draws the same table as tasks.jobs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tasks.jobs import FINAL, MOVES, Event, State

Moves = dict[tuple[State, Event], State]


@pytest.fixture(scope="module")
def page() -> str:
    return (Path(__file__).parents[3] / "docs" / "job-states.md").read_text(encoding="utf-8")


def _fenced(page: str, kind: str) -> str:
    found = re.search(rf"^```{kind}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no ```{kind} block"
    return found[1]


def _drawn(page: str) -> Moves:
    arrows = re.findall(r"^\s*(\w+) --> (\w+): (\w+)$", _fenced(page, "mermaid"), re.MULTILINE)
    return {(State(before), Event(event)): State(after) for before, after, event in arrows}


def _told(page: str) -> Moves:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `(\w+)` \|", page, re.MULTILINE)
    return {(State(before), Event(event)): State(after) for before, event, after in rows}


def test_the_diagram_draws_every_move_and_no_other(page: str) -> None:
    assert _drawn(page) == dict(MOVES)


def test_the_table_tells_every_move_and_no_other(page: str) -> None:
    assert _told(page) == dict(MOVES)


def test_the_drawing_in_text_names_every_state_and_every_event(page: str) -> None:
    words = set(re.findall(r"\w+", _fenced(page, "")))
    assert {state.value for state in State} | {event.value for event in Event} <= words


def test_the_diagram_ends_in_the_final_states_that_nothing_leaves(page: str) -> None:
    ends = re.findall(r"^\s*(\w+) --> \[\*\]$", _fenced(page, "mermaid"), re.MULTILINE)
    assert {State(end) for end in ends} == FINAL - {before for before, _ in MOVES}
