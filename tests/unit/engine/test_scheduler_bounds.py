"""What holds for any mix of models, lanes, priorities and callers, on a clock of service given."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.schema import CostCoefficients
from catalog.terms import Lane
from engine.batcher import Bounds
from engine.scheduler import Policy, Scheduler
from engine.seats import Claim, Seat, claim
from engine.types import Batch, Work

MakeWork = Callable[..., Work]

COST = CostCoefficients(base=2.0, per_token=0.05)
POLICY = Policy()


@dataclass(frozen=True)
class Row:
    """One work of a random mix."""

    model: str
    lane: Lane
    priority: int
    caller: str
    lengths: list[int]
    deadline: float | None


ROWS = st.builds(
    Row,
    model=st.sampled_from(["a", "b"]),
    lane=st.sampled_from(list(Lane)),
    priority=st.integers(0, 9),
    caller=st.sampled_from(["", "x", "y", "z"]),
    lengths=st.lists(st.integers(1, 400), min_size=1, max_size=5),
    deadline=st.none() | st.floats(0, 100),
)
BOUNDS = st.builds(
    Bounds, st.integers(1, 16), st.integers(64, 2048), st.just(COST), st.floats(0, 2), padded=st.booleans()
)


def work_of(make_work: MakeWork, row: Row) -> Work:
    cost = COST.batch(1, max(row.lengths))
    return make_work(
        model=row.model,
        lane=row.lane,
        priority=row.priority,
        caller=row.caller,
        lengths=row.lengths,
        deadline=row.deadline,
        cost_ms=cost,
    )


def spent(batch: Batch, bounds: Bounds) -> float:
    return bounds.cost_ms([entry.item.length for entry in batch.entries])


@settings(deadline=None)
@given(st.lists(ROWS, max_size=20), BOUNDS, st.lists(st.booleans(), max_size=40))
def test_no_batch_passes_a_bound_and_nothing_idles_beside_work_that_can_run(
    make_work: MakeWork, rows: list[Row], bounds: Bounds, adds: list[bool]
) -> None:
    scheduler, pending, waiting = Scheduler(), list(rows), Counter[str]()
    for add in [*adds, *[False] * 200]:
        if add and pending:
            work = work_of(make_work, pending.pop())
            scheduler.add(work)
            waiting[work.model] += len(work.items)
            continue
        batch = scheduler.pick(lambda model: bounds if model == "a" else None, idle=True)
        assert (batch is not None) == bool(waiting["a"])
        if batch is None:
            continue
        lengths = [entry.item.length for entry in batch.entries]
        assert len(lengths) <= bounds.items
        assert len(lengths) == 1 or bounds.computed(lengths) <= bounds.tokens
        waiting["a"] -= len(lengths)


@settings(deadline=None, max_examples=20)
@given(st.lists(ROWS, min_size=1, max_size=5), st.lists(ROWS, min_size=1, max_size=4), BOUNDS, st.data())
def test_every_item_is_served_within_sixteen_batches_for_each_that_is_as_old_under_any_later_flood(
    make_work: MakeWork, rows: list[Row], flood: list[Row], bounds: Bounds, data: st.DataObject
) -> None:
    scheduler = Scheduler(POLICY)
    works = [work_of(make_work, row) for row in rows]
    for work in works:
        scheduler.add(work)
    target = works[data.draw(st.integers(0, len(works) - 1))]
    older = works[: works.index(target) + 1]
    largest = max(bounds.cost_ms([400]), bounds.cost.base + bounds.tokens * bounds.cost.per_token)
    limit = sum(len(work.items) for work in older) * largest * (1 / POLICY.oldest_share + 1) + largest
    left, waited, number = len(target.items), 0.0, 0
    while left:
        # As much comes anew as leaves, and of the kind that goes first.
        while scheduler.items < 30:
            row = flood[number % len(flood)]
            scheduler.add(make_work(**_as_urgent(row, number)))
            number += 1
        batch = scheduler.pick(lambda _: bounds, idle=True)
        assert batch is not None
        waited += spent(batch, bounds)
        left -= sum(entry.work is target for entry in batch.entries)
        assert waited <= limit


def _as_urgent(row: Row, number: int) -> dict[str, object]:
    return {
        "model": row.model,
        "lane": Lane.INTERACTIVE,
        "priority": 9,
        "caller": f"flood-{number}",
        "lengths": row.lengths,
        "cost_ms": 0.01,
        "deadline": 0.0,
    }


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=25), st.integers(1, 300), BOUNDS)
def test_equal_items_of_one_flow_leave_in_order(
    make_work: MakeWork, rows: list[Row], length: int, bounds: Bounds
) -> None:
    scheduler, expected, left = Scheduler(), defaultdict[object, list[str]](list), defaultdict[object, list[str]](list)
    for row in rows:
        work = work_of(make_work, Row(row.model, row.lane, row.priority, row.caller, [length], None))
        scheduler.add(work)
        expected[work.model, work.lane, work.priority, work.caller].append(work.id)
    while (batch := scheduler.pick(lambda _: bounds, idle=True)) is not None:
        for entry in batch.entries:
            work = entry.work
            left[work.model, work.lane, work.priority, work.caller].append(work.id)
    assert left == expected


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=40),
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(0, 200),
    BOUNDS,
)
def test_a_callers_thousand_does_not_delay_anothers_one(
    make_work: MakeWork, lengths: list[int], mean: int, own: int, later: int, bounds: Bounds
) -> None:
    scheduler = Scheduler()
    for number in range(1000):
        length = lengths[number % len(lengths)]
        scheduler.add(make_work(lengths=[length], cost_ms=COST.batch(1, length), caller="many"))
    for _ in range(min(later, 5)):
        scheduler.pick(lambda _: bounds, idle=True)
    one = make_work(lengths=[own], cost_ms=COST.batch(1, own), caller="one")
    scheduler.add(one)
    waited = 0.0
    while (batch := scheduler.pick(lambda _: bounds, idle=True)) is not None:
        if any(entry.work is one for entry in batch.entries):
            break
        waited += spent(batch, bounds)
    largest = max(bounds.cost_ms([300]), bounds.cost.base + bounds.tokens * bounds.cost.per_token)
    # Its own cost in the other's service, the batch in progress, and one that a single item has filled up.
    assert waited <= one.cost_ms + 2 * largest


@pytest.mark.parametrize("lane", list(Lane))
def test_a_callers_own_deadlines_order_its_work_and_nobody_elses(make_work: MakeWork, lane: Lane) -> None:
    scheduler = Scheduler()
    plain = [make_work(caller="a", lane=lane) for _ in range(3)]
    late, soon = make_work(caller="a", lane=lane, deadline=90.0), make_work(caller="a", lane=lane, deadline=50.0)
    other = [make_work(caller="b", lane=lane) for _ in range(5)]
    for work in (*plain, late, soon, *other):
        scheduler.add(work)
    one = Bounds(1, 10**9, CostCoefficients(base=0.0, per_token=0.0))
    order = []
    while (batch := scheduler.pick(lambda _: one, idle=True)) is not None:
        order.append(batch.entries[0].work)
    assert [work for work in order if work.caller == "a"] == [soon, late, *plain]
    assert [work for work in order if work.caller == "b"] == other
    assert all({order[i].caller, order[i + 1].caller} == {"a", "b"} for i in range(0, 10, 2))


def test_a_deadline_that_comes_later_than_a_cheap_job_does_not_shut_its_flow_out(make_work: MakeWork) -> None:
    scheduler = Scheduler(Policy(oldest_share=0.0))
    cheap, dear = make_work(caller="a", cost_ms=1.0), make_work(caller="a", cost_ms=50.0, deadline=5.0)
    others = [make_work(caller="b", cost_ms=1.0) for _ in range(60)]
    for work in (cheap, dear, *others):
        scheduler.add(work)
    one = Bounds(1, 10**9, CostCoefficients(base=1.0, per_token=0.0))
    order = []
    while (batch := scheduler.pick(lambda _: one, idle=True)) is not None:
        order.append(batch.entries[0].work)
    assert order.index(dear) < order.index(cheap)
    assert order.index(dear) <= 51


STEP_MS = 5.0


class Generation:
    """Sequences that sit in a session for ever, each step all of them."""

    def __init__(self, scheduler: Scheduler, works: list[Work]) -> None:
        self.scheduler = scheduler
        for work in works:
            scheduler.add(work)
        self.seats: list[Seat] = []
        while (seat := scheduler.join("g")) is not None:
            self.seats.append(seat)

    def claims(self) -> list[Claim]:
        return [claim("g", self.seats, STEP_MS)]

    def ran(self) -> None:
        share = STEP_MS / len(self.seats)
        self.scheduler.charge([(seat, share) for seat in self.seats])


def turn(scheduler: Scheduler, generation: Generation, bounds: Bounds) -> Batch | Claim:
    chosen = scheduler.choose(lambda model: None if model == "g" else bounds, generation.claims(), idle=True)
    assert chosen is not None
    if isinstance(chosen, Claim):
        generation.ran()
    return chosen


@settings(deadline=None)
@given(st.integers(1, 5), st.lists(st.integers(1, 20), min_size=1, max_size=20), st.integers(1, 60))
def test_an_embedding_that_comes_now_and_then_waits_for_one_step_at_most(
    make_work: MakeWork, sequences: int, gaps: list[int], length: int
) -> None:
    scheduler = Scheduler()
    generation = Generation(scheduler, [make_work(model="g", caller=f"g{n}") for n in range(sequences)])
    bounds = Bounds(16, 1024, COST)
    for number, gap in enumerate(gaps):
        for _ in range(gap):
            assert isinstance(turn(scheduler, generation, bounds), Claim)
        scheduler.add(make_work(lengths=[length], cost_ms=COST.batch(1, length), caller=f"e{number % 2}"))
        # The step under way when it came was the last before it.
        assert isinstance(turn(scheduler, generation, bounds), Batch)


@settings(deadline=None, max_examples=6)
@given(st.integers(1, 4), st.integers(20, 400), st.integers(1, 3))
def test_generation_gets_its_share_beside_an_endless_flood_of_embeddings(
    make_work: MakeWork, sequences: int, length: int, callers: int
) -> None:
    scheduler = Scheduler()
    generation = Generation(scheduler, [make_work(model="g", caller="g") for _ in range(sequences)])
    bounds = Bounds(1, 10**9, COST)
    given_to = {"g": 0.0, "e": 0.0}
    total = 0
    while sum(given_to.values()) < 20_000:
        while scheduler.items < 2 * callers:
            cost = COST.batch(1, length)
            scheduler.add(make_work(lengths=[length], cost_ms=cost, caller=f"e{total % callers}"))
            total += 1
        chosen = turn(scheduler, generation, bounds)
        given_to["g" if isinstance(chosen, Claim) else "e"] += (
            STEP_MS if isinstance(chosen, Claim) else spent(chosen, bounds)
        )
    fair = 20_000 / (callers + 1)
    assert given_to["g"] >= fair - callers * POLICY.step_lead_ms - 20_000 * POLICY.oldest_share
    assert given_to["e"] >= 20_000 - fair - 20_000 * POLICY.oldest_share - 500


def test_bulk_generation_gives_way_to_interactive_embeddings_and_still_advances(make_work: MakeWork) -> None:
    scheduler = Scheduler()
    generation = Generation(scheduler, [make_work(model="g", caller="g", lane=Lane.BULK)])
    bounds = Bounds(1, 10**9, COST)
    steps = 0.0
    total = 0.0
    while total < 20_000:
        while scheduler.items < 5:
            scheduler.add(make_work(lengths=[60], cost_ms=5.0, caller="e"))
        chosen = turn(scheduler, generation, bounds)
        total += 5.0
        steps += 5.0 if isinstance(chosen, Claim) else 0.0
    assert 0.04 <= steps / total <= 0.15


def test_seats_go_to_callers_by_turns_and_to_the_bulk_lane_now_and_then(make_work: MakeWork) -> None:
    scheduler = Scheduler()
    works = [make_work(model="g", caller="many") for _ in range(40)]
    works += [make_work(model="g", caller="bulk", lane=Lane.BULK) for _ in range(40)]
    works += [make_work(model="g", caller="one")]
    for work in works:
        scheduler.add(work)
    seats = []
    for _ in range(32):
        seat = scheduler.join("g")
        assert seat is not None
        scheduler.charge([(seat, 5.0)])
        seats.append(seat.entry.work.caller)
    assert "one" in seats[:3]
    assert seats.count("bulk") == 2
    assert scheduler.waiting("g") == 81 - 32


def test_a_seat_that_is_given_up_leaves_nothing_behind(make_work: MakeWork) -> None:
    scheduler = Scheduler()
    generation = Generation(scheduler, [make_work(model="g", caller=str(n)) for n in range(5)])
    assert (scheduler.items, scheduler.works, scheduler.models) == (0, 0, [])
    for seat in generation.seats:
        scheduler.leave(seat)
    assert all(flow.waiting == 0 for flow in scheduler._flows.values())
    assert scheduler.join("g") is None
    assert scheduler.first_claim("g", lambda item: 1.0) is None
