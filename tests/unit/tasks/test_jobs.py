"""The states of a job and the moves between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import CheckConstraint

from tasks.jobs import FINAL, MOVES, OPEN, Event, State, move, states_before
from tasks.models import jobs

EVENTS = st.lists(st.sampled_from(list(Event)), max_size=30)


def test_every_state_is_either_open_or_final() -> None:
    assert set(State) == OPEN | FINAL
    assert not OPEN & FINAL
    assert {state for state in State if state.final} == FINAL


@pytest.mark.parametrize("state", sorted(FINAL))
def test_nothing_but_a_retry_leaves_a_final_state(state: State) -> None:
    assert {event for event in Event if move(state, event)} <= {Event.RETRY}


def test_a_job_that_succeeded_stays_so() -> None:
    assert all(move(State.SUCCEEDED, event) is None for event in Event)


@pytest.mark.parametrize("state", sorted(OPEN))
def test_an_open_job_can_end_in_every_way(state: State) -> None:
    assert {after for (before, _), after in MOVES.items() if before is state} >= FINAL


@pytest.mark.parametrize("event", list(Event))
def test_an_event_leads_to_one_state_wherever_it_happens(event: Event) -> None:
    assert len({after for (_, e), after in MOVES.items() if e is event}) == 1


@pytest.mark.parametrize("event", list(Event))
def test_the_states_before_an_event_are_those_it_changes(event: Event) -> None:
    assert set(states_before(event)) == {state for state in State if move(state, event)}


@given(EVENTS)
def test_a_job_ends_once_between_two_retries(events: list[Event]) -> None:
    state, ends = State.QUEUED, 0
    for event in events:
        after = move(state, event)
        if after is None:
            continue
        if event is Event.RETRY:
            ends = 0
        ends += after.final
        state = after
        assert ends <= 1


def test_the_table_of_jobs_allows_these_states_and_no_other() -> None:
    (check,) = [c for c in jobs.constraints if isinstance(c, CheckConstraint)]
    allowed = str(check.sqltext).partition("(")[2].rstrip(")").split(",")
    assert {word.strip("'") for word in allowed} == set(State)
