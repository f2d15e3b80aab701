from __future__ import annotations

import threading

import pytest

from roost.crew import Crew


def test_calls_are_carried_out_side_by_side_up_to_the_size() -> None:
    together = threading.Barrier(3, timeout=10)
    with Crew[int](3) as crew:
        for n in range(3):
            crew.start(n, lambda n=n: together.wait() * 0 + n * n)  # type: ignore[misc] # mypy infers no default
        assert sorted(crew.next() for _ in range(3)) == [(0, 0), (1, 1), (2, 4)]
        assert crew.running == 0


def test_what_a_call_raises_is_raised_where_its_end_is_waited_for() -> None:
    def fail() -> int:
        raise ValueError("no good")

    with Crew[int](1) as crew:
        crew.start(0, fail)
        with pytest.raises(ValueError, match="no good"):
            crew.next()


def test_a_crew_that_is_left_waits_for_nobody_and_begins_nothing_more() -> None:
    hold, begun, never = threading.Event(), threading.Event(), threading.Event()

    def first() -> bool:
        begun.set()
        return hold.wait(10)

    def second() -> bool:
        never.set()
        return True

    with Crew[bool](1) as crew:
        crew.start(0, first)
        crew.start(1, second)
        assert begun.wait(10)
    # Here the first call is still under way.
    hold.set()
    assert crew.next() == (0, True)
    assert not never.is_set()
