"""Deadlines pass in their order, and those of works that have left are passed over."""

from __future__ import annotations

from engine.deadlines import Deadlines


def test_deadlines_pass_in_their_order_each_once() -> None:
    deadlines = Deadlines(lambda deadline, work_id: True)
    for at, work_id in ((3.0, "c"), (1.0, "a"), (2.0, "b")):
        deadlines.add(at, work_id)
    assert deadlines.first == 1.0
    assert [deadlines.passed(2.0) for _ in range(3)] == ["a", "b", None]
    assert deadlines.first == 3.0


def test_works_that_have_left_are_forgotten_whenever_theirs_would_come() -> None:
    waiting: set[str] = set()
    deadlines = Deadlines(lambda deadline, work_id: work_id in waiting)
    for number in range(1000):
        deadlines.add(float(number), str(number))
    waiting.add("999")
    assert deadlines.passed(0.0) is None
    assert deadlines.first == 999.0
    assert deadlines.passed(999.0) == "999"
    assert deadlines.first is None
