from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.schema import CostCoefficients
from catalog.terms import Lane
from engine.batcher import Bounds
from engine.scheduler import Policy, Scheduler
from engine.types import Batch, Work

MakeWork = Callable[..., Work]

FREE = CostCoefficients(base=0.0, per_token=0.0)
ONE = Bounds(1, 10**9, FREE)
FEW = Bounds(4, 64, CostCoefficients(base=1.0, per_token=0.1))
COST = CostCoefficients(base=5.0, per_token=0.22)
CPU = Bounds(256, 1024, COST, overhead_ms=1.0)


def pick(scheduler: Scheduler, bounds: Bounds = ONE, *models: str, idle: bool = True) -> Batch | None:
    return scheduler.pick(lambda model: bounds if not models or model in models else None, idle=idle)


def order(scheduler: Scheduler, bounds: Bounds = ONE) -> list[str]:
    """The ids of works in the order in which their items run."""
    ids = []
    while (batch := pick(scheduler, bounds)) is not None:
        ids += [entry.work.id for entry in batch.entries]
    return ids


def filled(*works: Work, policy: Policy | None = None) -> Scheduler:
    scheduler = Scheduler(policy or Policy())
    for work in works:
        scheduler.add(work)
    return scheduler


def test_nothing_waits_in_an_empty_scheduler() -> None:
    scheduler = Scheduler()
    assert pick(scheduler) is None
    assert (scheduler.works, scheduler.items, scheduler.models) == (0, 0, [])


def test_equals_run_in_the_order_of_their_arrival(make_work: MakeWork) -> None:
    works = [make_work() for _ in range(20)]
    assert order(filled(*works)) == [work.id for work in works]


def test_a_batch_keeps_the_order_of_arrival_among_equal_lengths(make_work: MakeWork) -> None:
    works = [make_work(lengths=[8]) for _ in range(20)]
    assert order(filled(*works), CPU) == [work.id for work in works]


def test_callers_take_turns(make_work: MakeWork) -> None:
    many = [make_work(caller="many") for _ in range(1000)]
    one = make_work(caller="one")
    assert order(filled(*many, one)).index(one.id) <= 2


def test_callers_share_by_cost_not_by_count(make_work: MakeWork) -> None:
    dear = [make_work(caller="dear", lengths=[100], cost_ms=10.0) for _ in range(50)]
    cheap = [make_work(caller="cheap", lengths=[10], cost_ms=1.0) for _ in range(500)]
    single = Bounds(1, 10**9, CostCoefficients(base=0.0, per_token=0.1))
    first = order(filled(*dear, *cheap), single)[:110]
    ids = {work.id for work in dear}
    assert sum(work_id in ids for work_id in first) == pytest.approx(10, abs=2)


@pytest.mark.parametrize("said", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("items", [1, 12])
def test_callers_share_by_what_their_work_takes_whatever_it_was_said_to_cost(
    make_work: MakeWork, said: float, items: int
) -> None:
    wrong = [make_work(caller="wrong", cost_ms=2.0 * said) for _ in range(500)]
    right = [make_work(caller="right", cost_ms=2.0) for _ in range(500)]
    bounds = Bounds(items, 10**9, CostCoefficients(base=1.0, per_token=0.125))
    first = order(filled(*wrong, *right), bounds)[:240]
    ids = {work.id for work in wrong}
    # A flow may be one item ahead by what was said, and the sixteenth goes by age.
    assert sum(work_id in ids for work_id in first) == pytest.approx(120, abs=40)


def test_callers_share_also_when_one_of_them_fills_its_batches(make_work: MakeWork) -> None:
    flood = [make_work(caller="flood", lengths=[8 + i % 25], cost_ms=COST.batch(1, 8 + i % 25)) for i in range(5000)]
    single = make_work(caller="single", lengths=[512], cost_ms=COST.batch(1, 512))
    scheduler = filled(*flood, single)
    waited = 0.0
    while (batch := pick(scheduler, CPU)) is not None and batch.entries[0].work is not single:
        waited += COST.batch(len(batch.entries), batch.padded_length)
    largest = COST.batch(1, 1024)
    assert waited <= 2 * single.cost_ms + largest


def test_a_caller_is_not_punished_for_what_it_cancelled(make_work: MakeWork) -> None:
    dropped = [make_work(caller="a") for _ in range(100)]
    scheduler = filled(*dropped)
    for work in dropped:
        scheduler.drop(work.id)
    others = [make_work(caller="b") for _ in range(10)]
    again = make_work(caller="a")
    for work in (*others, again):
        scheduler.add(work)
    assert order(scheduler).index(again.id) <= 2


def test_a_caller_is_not_packed_last_for_what_it_cancelled(make_work: MakeWork) -> None:
    dropped = [make_work(caller="a") for _ in range(100)]
    scheduler = filled(*dropped)
    for work in dropped:
        scheduler.drop(work.id)
    others = [make_work(caller="b") for _ in range(10)]
    again = make_work(caller="a")
    for work in (*others, again):
        scheduler.add(work)
    batch = pick(scheduler, Bounds(2, 10**9, FREE))
    assert batch is not None
    assert [entry.work.id for entry in batch.entries] == [others[0].id, again.id]


def test_callers_that_have_gone_are_forgotten(make_work: MakeWork) -> None:
    scheduler = Scheduler()
    for number in range(5000):
        scheduler.add(make_work(caller=str(number)))
        order(scheduler)
    assert len(scheduler._flows) < 600


def test_a_cheap_item_behind_a_cancelled_dear_one_gets_its_own_turn(make_work: MakeWork) -> None:
    dear, cheap = make_work(caller="a", cost_ms=1000.0), make_work(caller="a", cost_ms=1.0)
    others = [make_work(caller="b", cost_ms=2.0) for _ in range(10)]
    scheduler = filled(dear, cheap, *others)
    scheduler.drop(dear.id)
    assert order(scheduler)[0] == cheap.id


def test_a_caller_that_comes_late_does_not_claim_the_past(make_work: MakeWork) -> None:
    early = [make_work(caller="early") for _ in range(100)]
    scheduler = filled(*early)
    for _ in range(50):
        pick(scheduler)
    late = [make_work(caller="late") for _ in range(50)]
    for work in late:
        scheduler.add(work)
    ids = {work.id for work in late}
    assert sum(work_id in ids for work_id in order(scheduler)[:20]) == pytest.approx(10, abs=1)


def test_a_higher_priority_gets_more_but_not_all(make_work: MakeWork) -> None:
    low = [make_work(caller="a", priority=1) for _ in range(300)]
    high = [make_work(caller="b", priority=9) for _ in range(300)]
    first = order(filled(*low, *high))[:200]
    ids = {work.id for work in low}
    assert 1 <= sum(work_id in ids for work_id in first) <= 40


def test_an_urgent_job_of_a_caller_overtakes_its_own_backlog(make_work: MakeWork) -> None:
    backlog = [make_work(priority=5) for _ in range(100)]
    urgent = make_work(priority=9)
    assert order(filled(*backlog, urgent)).index(urgent.id) <= 1


def test_interactive_work_goes_before_bulk(make_work: MakeWork) -> None:
    bulk = [make_work(lane=Lane.BULK) for _ in range(100)]
    one = make_work()
    assert order(filled(*bulk, one))[0] == one.id


def test_bulk_advances_beside_endless_interactive_work(make_work: MakeWork) -> None:
    policy = Policy(bulk_share=1 / 16, oldest_share=0.0)
    bulk = [make_work(lane=Lane.BULK) for _ in range(400)]
    interactive = [make_work(caller=str(i)) for i in range(1600)]
    ids = {work.id for work in bulk}
    first = order(filled(*bulk, *interactive, policy=policy))[:1600]
    assert sum(work_id in ids for work_id in first) == pytest.approx(1600 / 17, rel=0.1)


def test_bulk_takes_the_device_when_nothing_else_waits(make_work: MakeWork) -> None:
    bulk = [make_work(lane=Lane.BULK) for _ in range(10)]
    assert order(filled(*bulk)) == [work.id for work in bulk]


def test_lanes_do_not_share_a_batch(make_work: MakeWork) -> None:
    scheduler = filled(make_work(), make_work(lane=Lane.BULK))
    batch = pick(scheduler, CPU)
    assert batch is not None
    assert len(batch.entries) == 1


def test_groups_do_not_share_a_batch(make_work: MakeWork) -> None:
    scheduler = Scheduler()
    for group in ("a", "b", "a"):
        scheduler.add(make_work(), group)
    assert [len(b.entries) for b in (pick(scheduler, CPU), pick(scheduler, CPU)) if b] == [2, 1]


def test_the_oldest_is_served_however_many_new_callers_come(make_work: MakeWork) -> None:
    scheduler = filled(*[make_work(caller="old", cost_ms=10.0) for _ in range(3)])
    last = make_work(caller="old", cost_ms=10.0)
    scheduler.add(last)
    for number in range(2000):
        for extra in range(2):
            scheduler.add(make_work(caller=f"new-{number}-{extra}"))
        batch = pick(scheduler)
        assert batch is not None
        if batch.entries[0].work is last:
            assert number < 17 * 40
            return
    pytest.fail("the oldest work was never served")


def test_only_models_that_are_ready_are_picked(make_work: MakeWork) -> None:
    scheduler = filled(make_work(model="a"), make_work(model="b"))
    batch = pick(scheduler, ONE, "b")
    assert batch is not None
    assert batch.model == "b"
    assert pick(scheduler, ONE, "b") is None
    assert scheduler.waiting("a") == 1


def test_a_work_alone_waits_for_an_idle_device_and_holds_up_the_rest(make_work: MakeWork) -> None:
    alone = make_work("x", "y", alone=True)
    other = make_work()
    scheduler = filled(alone, other)
    assert pick(scheduler, CPU, idle=False) is None
    batch = pick(scheduler, CPU)
    assert batch is not None
    assert batch.alone
    assert [entry.work.id for entry in batch.entries] == [alone.id]


def test_a_dropped_work_never_runs(make_work: MakeWork) -> None:
    works = [make_work("x", "y") for _ in range(3)]
    scheduler = filled(*works)
    assert scheduler.drop(works[1].id) is works[1]
    assert scheduler.drop(works[1].id) is None
    assert set(order(scheduler)) == {works[0].id, works[2].id}


def test_dropping_a_model_drops_its_works_only(make_work: MakeWork) -> None:
    mine = [make_work(model="a") for _ in range(3)]
    other = make_work(model="b")
    scheduler = filled(*mine, other)
    assert scheduler.drop_model("a") == mine
    assert scheduler.models == ["b"]
    assert order(scheduler) == [other.id]


def test_what_an_item_costs_to_schedule_does_not_grow_with_what_waits(make_work: MakeWork) -> None:
    def seconds_each(waiting: int) -> float:
        scheduler = filled(*[make_work(lengths=[8 + i % 100], caller=str(i % 10)) for i in range(waiting)])
        began, items = time.thread_time(), 0
        for _ in range(20):
            batch = pick(scheduler, CPU)
            items += len(batch.entries) if batch else 0
        return (time.thread_time() - began) / items

    few = min(seconds_each(500) for _ in range(3))
    many = min(seconds_each(20_000) for _ in range(3))
    assert many < 4 * few


def test_padding_stays_under_three_percent_when_much_waits(make_work: MakeWork) -> None:
    lengths = deque(_mixed_lengths(3000))
    scheduler = filled(*[make_work(lengths=[lengths.popleft()]) for _ in range(256)])
    real = padded = 0
    while lengths and (batch := pick(scheduler, CPU)) is not None:
        real += sum(entry.item.length for entry in batch.entries)
        padded += len(batch.entries) * batch.padded_length
        for _ in batch.entries:
            if lengths:
                scheduler.add(make_work(lengths=[lengths.popleft()]))
    assert real / padded >= 0.97


def _mixed_lengths(count: int) -> list[int]:
    """Seven in ten short, one in four middling, one in twenty long; spread evenly, without chance."""
    spread = [(i * 7919) % 1000 for i in range(count)]
    return [8 + s % 25 if i % 20 < 14 else 64 + s % 137 if i % 20 < 19 else 300 + s % 213 for i, s in enumerate(spread)]


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(8, 60), st.integers(100, 512))
def test_a_long_item_among_endless_short_ones_waits_at_most_twice_its_fair_share(
    make_work: MakeWork, floods: int, short: int, long: int
) -> None:
    scheduler = Scheduler()

    def flood(count: int) -> None:
        for number in range(count):
            length = short + number % 7
            caller = f"flood-{number % floods}"
            scheduler.add(make_work(lengths=[length], cost_ms=COST.batch(1, length), caller=caller))

    flood(300)
    for _ in range(5):
        pick(scheduler, CPU)
    late = make_work(lengths=[long], cost_ms=COST.batch(1, long), caller="late")
    scheduler.add(late)
    share = late.cost_ms * (floods + 1)
    waited = 0.0
    while True:
        batch = pick(scheduler, CPU)
        assert batch is not None
        waited += COST.batch(len(batch.entries), batch.padded_length)
        if any(entry.work is late for entry in batch.entries):
            break
        flood(len(batch.entries))
    # A batch that has begun is not broken off, and each caller may be one batch ahead.
    assert waited <= 2 * share + (floods + 1) * COST.batch(1, 1024)


_WORKS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(list(Lane)),
        st.integers(0, 9),
        st.sampled_from(["", "x", "y"]),
        st.lists(st.integers(1, 100), min_size=1, max_size=6),
        st.booleans(),
    ),
    max_size=30,
)
_STEPS = st.lists(st.sampled_from(["add", "pick", "pick a", "drop", "expire"]), max_size=80)


@settings(deadline=None)
@given(_WORKS, _STEPS)
def test_every_item_runs_exactly_once_within_bounds_and_nothing_idles(
    make_work: MakeWork,
    rows: list[tuple[str, Lane, int, str, list[int], bool]],
    steps: list[str],
) -> None:
    works = deque(
        make_work(
            model=model, lane=lane, priority=priority, caller=caller, lengths=lengths, alone=alone, deadline=float(n)
        )
        for n, (model, lane, priority, caller, lengths, alone) in enumerate(rows)
    )
    scheduler = Scheduler()
    ran: Counter[tuple[str, int]] = Counter()
    added: dict[str, Work] = {}
    gone: set[str] = set()

    def check(batch: Batch | None, models: set[str]) -> None:
        could = any(
            ran[work.id, item.index] == 0
            for work in added.values()
            if work.id not in gone and work.model in models
            for item in work.items
        )
        assert (batch is not None) == could
        if batch is None:
            return
        assert len({(e.work.model, e.work.verb, e.work.lane, e.work.alone) for e in batch.entries}) == 1
        assert len(batch.entries) <= (1 if batch.alone else FEW.items)
        assert len(batch.entries) == 1 or len(batch.entries) * batch.padded_length <= FEW.tokens
        ran.update((entry.work.id, entry.item.index) for entry in batch.entries)

    for number, step in enumerate(steps):
        if step == "add" and works:
            work = works.popleft()
            scheduler.add(work)
            added[work.id] = work
        elif step == "pick":
            check(pick(scheduler, FEW), {"a", "b", "c"})
        elif step == "pick a":
            check(pick(scheduler, FEW, "a"), {"a"})
        elif step == "drop" and added:
            dropped = list(added)[number % len(added)]
            if scheduler.drop(dropped) is not None:
                gone.add(dropped)
        elif step == "expire":
            gone.update(work.id for work in scheduler.expire(number / 4))
    while (batch := pick(scheduler, FEW)) is not None:
        check(batch, {"a", "b", "c"})
    check(None, {"a", "b", "c"})
    assert set(ran.values()) <= {1}
    assert (scheduler.works, scheduler.items, scheduler.models) == (0, 0, [])
