"""Bulk work gives way to interactive work that may come, never stops, and is not slowed down where none does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.schema import CostCoefficients
from catalog.terms import Lane
from engine.batcher import Bounds
from engine.courtesy import Courtesy, Share
from engine.scheduler import Policy, Scheduler
from engine.types import Batch, Work

MakeWork = Callable[..., Work]

COST = CostCoefficients(base=4.0, per_token=0.2)
BOUNDS = Bounds(256, 1024, COST, overhead_ms=1.0)
POLICY = Policy()
LATER = POLICY.heed_s + 0.1


def bulk(make_work: MakeWork, count: int, length: int = 80) -> list[Work]:
    cost = COST.batch(1, length)
    fields = {"model": "bulk", "lane": Lane.BULK, "caller": "bulk"}
    return [make_work(lengths=[length], cost_ms=cost, **fields) for _ in range(count)]


def one(make_work: MakeWork, at: float = 0.0, length: int = 80) -> Work:
    return make_work(lengths=[length], cost_ms=COST.batch(1, length), arrived=at)


def spent(batch: Batch) -> float:
    return BOUNDS.cost_ms([entry.item.length for entry in batch.entries])


def pick(scheduler: Scheduler, now: float = 0.0, *, bulk: bool = True) -> Batch:
    batch = scheduler.pick(lambda _: BOUNDS, idle=True, now=now, bulk=bulk)
    assert batch is not None
    return batch


def filled(works: list[Work]) -> Scheduler:
    scheduler = Scheduler(POLICY)
    for work in works:
        scheduler.add(work)
    return scheduler


def test_bulk_work_alone_runs_at_full_size(make_work: MakeWork) -> None:
    assert len(pick(filled(bulk(make_work, 40))).entries) == 1024 // 80


def test_a_bulk_batch_takes_no_longer_than_interactive_ones_while_these_come(make_work: MakeWork) -> None:
    scheduler = filled([one(make_work), *bulk(make_work, 40)])
    assert pick(scheduler).lane is Lane.INTERACTIVE
    assert len(pick(scheduler, 0.02).entries) == 1


def test_bulk_batches_grow_with_the_time_for_which_no_interactive_work_has_come(make_work: MakeWork) -> None:
    scheduler = filled([one(make_work), *bulk(make_work, 60)])
    pick(scheduler)
    for now in (LATER, 3.0, 4.0):
        assert spent(pick(scheduler, now)) == pytest.approx(now * 50, abs=20)
    assert len(pick(scheduler, 60.0).entries) == 1024 // 80


def test_a_bulk_batch_is_never_so_small_that_most_of_it_is_the_batchs_own_cost(make_work: MakeWork) -> None:
    scheduler = filled([one(make_work, length=1), *bulk(make_work, 40, length=5)])
    pick(scheduler)
    assert len(pick(scheduler, 0.02).entries) == 5


def test_bulk_work_leaves_a_lane_free_only_while_interactive_work_may_come(make_work: MakeWork) -> None:
    scheduler = filled([one(make_work), *bulk(make_work, 40)])
    assert pick(scheduler, bulk=False).lane is Lane.INTERACTIVE
    assert scheduler.pick(lambda _: BOUNDS, idle=True, now=1.0, bulk=False) is None
    assert pick(scheduler, LATER, bulk=False).lane is Lane.BULK


def test_bulk_work_that_advances_by_itself_presses_in_nowhere(make_work: MakeWork) -> None:
    scheduler = filled(bulk(make_work, 200))
    now = 0.0
    for _ in range(40):
        # Bulk has as much of the device as interactive work has, in the gaps that this leaves.
        for _ in range(4):
            scheduler.add(one(make_work, now))
        while scheduler.waiting("m"):
            batch = pick(scheduler, now)
            assert batch.lane is Lane.INTERACTIVE
            now += spent(batch) / 1000
        batch = pick(scheduler, now)
        assert batch.lane is Lane.BULK
        now += spent(batch) / 1000


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=10),
    st.lists(st.integers(20, 400), min_size=1, max_size=10),
    st.integers(0, 5),
    st.integers(1, 4),
)
def test_under_any_flood_bulk_work_keeps_its_share_in_small_batches(
    make_work: MakeWork, lengths: list[int], of_bulk: list[int], head_start: int, callers: int
) -> None:
    scheduler = Scheduler(POLICY)
    for number in range(400):
        length = of_bulk[number % len(of_bulk)]
        fields = {"model": "bulk", "lane": Lane.BULK, "caller": f"b{number % 3}"}
        scheduler.add(make_work(lengths=[length], cost_ms=COST.batch(1, length), **fields))
    now = LATER
    for _ in range(head_start):
        now += spent(pick(scheduler, now)) / 1000
    had = {Lane.INTERACTIVE: 0.0, Lane.BULK: 0.0}
    longest_of = {Lane.INTERACTIVE: 0.0, Lane.BULK: 0.0}
    number = 0
    while sum(had.values()) < 10_000 and scheduler.waiting("bulk"):
        while scheduler.waiting("m") < 8:
            length = lengths[number % len(lengths)]
            scheduler.add(
                make_work(lengths=[length], cost_ms=COST.batch(1, length), caller=f"c{number % callers}", arrived=now)
            )
            number += 1
        batch = pick(scheduler, now)
        ms = spent(batch)
        had[batch.lane] += ms
        longest_of[batch.lane] = max(longest_of[batch.lane], ms)
        if batch.lane is Lane.BULK and len(batch.entries) > 1 and had[Lane.INTERACTIVE]:
            assert ms <= max(longest_of[Lane.INTERACTIVE], 2 * (COST.base + 1.0)) * 1.05
        now += ms / 1000
    due = had[Lane.INTERACTIVE] * POLICY.bulk_share
    assert had[Lane.BULK] >= due - POLICY.ahead_ms - 2 * COST.batch(1, 400)


def test_what_was_had_unasked_counts_up_to_a_bound() -> None:
    share = Share(0.5)
    share.had(1000.0, ahead=10.0)
    share.earn(40.0)
    assert share.due(10.0)
    assert not share.due(11.0)


@pytest.mark.parametrize(("now", "expected"), [(0.5, True), (1.0, True), (3.0, True), (3.1, False)])
def test_interactive_work_is_expected_for_a_while_after_it_was_seen(now: float, expected: bool) -> None:
    courtesy = Courtesy(heed_s=2.0)
    courtesy.saw(1.0)
    courtesy.saw(0.2)
    assert courtesy.expects(now) is expected


@pytest.mark.parametrize(("now", "until"), [(1.5, 3.0), (3.0, 3.0), (3.1, None)])
def test_it_is_known_until_when_interactive_work_is_expected(now: float, until: float | None) -> None:
    courtesy = Courtesy(heed_s=2.0)
    courtesy.saw(1.0)
    assert courtesy.until(now) == until
