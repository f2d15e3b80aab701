"""The guards of the SQL, taken from the table of states so that both can never differ."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from tasks.jobs import OPEN, Event, states_before


def one_of(states: Iterable[StrEnum]) -> str:
    """`('queued', …)` for an IN."""
    return "(" + ", ".join(f"'{state.value}'" for state in sorted(states)) + ")"


def before(event: Event) -> str:
    """The condition under which `event` has an effect on a row."""
    return f"jobs.state IN {one_of(states_before(event))}"


IS_OPEN = f"jobs.state IN {one_of(OPEN)}"
