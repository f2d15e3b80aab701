"""The guards of the SQL are the table of states."""

from __future__ import annotations

import pytest

from tasks.jobs import Event, State, move
from tasks.store.guards import before, one_of


@pytest.mark.parametrize("event", list(Event))
def test_a_guard_names_the_states_that_the_event_changes(event: Event) -> None:
    for state in State:
        assert (f"'{state.value}'" in before(event)) == (move(state, event) is not None)


def test_states_are_written_in_one_order() -> None:
    assert one_of({State.RUNNING, State.QUEUED}) == "('queued', 'running')"
