"""The table of jobs in hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tasks.child.hand import Hand, Held

MakeHeld = Callable[..., Held]


@pytest.fixture
def hand(make_held: MakeHeld) -> Hand:
    table = Hand()
    table.add("a", make_held())
    table.add("b", make_held(fence=2))
    return table


def test_a_second_copy_of_a_held_job_is_refused(hand: Hand, make_held: MakeHeld) -> None:
    assert hand.add("a", make_held()) is False
    assert len(hand) == 2


def test_a_job_starts_once_however_many_batches_it_needs(hand: Hand) -> None:
    assert [held.started for held in hand.started(["a"], 5.0)] == [5.0]
    assert hand.started(["a"], 9.0) == []


def test_only_one_thread_may_end_a_job(hand: Hand) -> None:
    assert hand.ending("a") is not None
    assert hand.ending("a") is None
    assert hand.ending("nobody") is None


def test_a_job_is_to_be_marked_only_after_it_has_run_for_a_while(hand: Hand) -> None:
    hand.started(["a", "b"], 5.0)
    assert hand.to_mark(4.9) == []
    assert len(hand.to_mark(5.0)) == 2


def test_an_ended_or_marked_job_is_not_marked_again(hand: Hand) -> None:
    [a, b] = hand.started(["a", "b"], 5.0)
    a.version = 2
    hand.ending("b")
    assert hand.to_mark(9.0) == []
    assert hand.marked() == [a]
    assert b not in hand.marked()


def test_a_job_delivered_before_is_a_suspect(hand: Hand) -> None:
    assert [hand.get(key).suspect for key in ("a", "b") if hand.get(key)] == [False, True]  # type: ignore[union-attr]


def test_dropped_jobs_are_forgotten(hand: Hand) -> None:
    hand.drop(["a", "unknown"])
    assert hand.get("a") is None
    assert len(hand) == 1


def test_progress_is_told_only_of_jobs_with_items_to_come(hand: Hand, make_held: MakeHeld) -> None:
    hand.add("three", make_held(items=[{"text": "x"}] * 3))
    assert [held.done for held in hand.ran({"three": 2, "unknown": 1})] == [2]
    assert hand.ran({"three": 1}) == []
