"""Seats of sequences: items leave the queue for them and come back to it."""

from __future__ import annotations

from collections.abc import Callable

from engine.scheduler import Scheduler
from engine.seats import Claim, claim
from engine.types import Work

MakeWork = Callable[..., Work]


def test_an_item_that_is_put_back_waits_in_its_old_place(make_work: MakeWork) -> None:
    scheduler = Scheduler()
    works = [make_work("a", "b", deadline=9.0), make_work("c", deadline=9.0)]
    for work in works:
        scheduler.add(work)
    seat = scheduler.join("m")
    assert seat is not None
    scheduler.put_back(seat)
    assert (scheduler.items, scheduler.works, scheduler.waiting("m")) == (3, 2, 3)
    joined = [found.entry for _ in range(3) if (found := scheduler.join("m")) is not None]
    assert [(entry.work.id, entry.item.index) for entry in joined] == [
        (works[0].id, 0),
        (works[0].id, 1),
        (works[1].id, 0),
    ]
    assert scheduler.join("m") is None


def test_the_only_item_of_a_work_that_is_put_back_has_its_deadline_still(make_work: MakeWork) -> None:
    scheduler = Scheduler()
    work = make_work(deadline=9.0)
    scheduler.add(work)
    seat = scheduler.join("m")
    assert seat is not None
    scheduler.expire(1.0)
    scheduler.put_back(seat)
    assert scheduler.expire(10.0) == [work]
    assert scheduler.items == 0


def test_of_two_models_for_one_caller_neither_keeps_the_other_from_stepping(make_work: MakeWork) -> None:
    scheduler = Scheduler()
    for model in ("cheap", "dear"):
        scheduler.add(make_work(model=model))
    seats = {"cheap": scheduler.join("cheap"), "dear": scheduler.join("dear")}
    had = {"cheap": 0, "dear": 0}
    for _ in range(20):
        claims = [claim(m, [s], 1.0 if m == "cheap" else 3.0) for m, s in seats.items() if s is not None]
        chosen = scheduler.choose(lambda _: None, claims, idle=True)
        assert isinstance(chosen, Claim)
        seat = seats[chosen.model]
        assert seat is not None
        scheduler.charge([(seat, chosen.cost_ms)])
        had[chosen.model] += 1
    assert had == {"cheap": 10, "dear": 10}
