"""Works whose deadline passes while they wait in the scheduler."""

from __future__ import annotations

from collections.abc import Callable

from catalog.schema import CostCoefficients
from engine.batcher import Bounds
from engine.scheduler import Scheduler
from engine.types import Work

MakeWork = Callable[..., Work]

ONE = Bounds(1, 10**9, CostCoefficients(base=0.0, per_token=0.0))


def filled(*works: Work) -> Scheduler:
    scheduler = Scheduler()
    for work in works:
        scheduler.add(work)
    return scheduler


def order(scheduler: Scheduler) -> list[str]:
    """The ids of works in the order in which their items run."""
    ids = []
    while (batch := scheduler.pick(lambda _: ONE, idle=True)) is not None:
        ids += [entry.work.id for entry in batch.entries]
    return ids


def test_a_work_past_its_deadline_is_given_up(make_work: MakeWork) -> None:
    soon, later, never = make_work(deadline=5.0), make_work(deadline=9.0), make_work()
    scheduler = filled(never, later, soon)
    assert scheduler.next_deadline() == 5.0
    assert scheduler.expire(4.9) == []
    assert scheduler.expire(5.0) == [soon]
    assert scheduler.next_deadline() == 9.0
    assert order(scheduler) == [later.id, never.id]


def test_a_deadline_of_a_work_that_ran_is_forgotten(make_work: MakeWork) -> None:
    scheduler = filled(*[make_work(deadline=5.0) for _ in range(10)])
    order(scheduler)
    assert scheduler.expire(6.0) == []
    assert scheduler.next_deadline() is None
