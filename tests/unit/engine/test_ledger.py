from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.account import Share
from engine.eviction import EvictionOrder, EvictionPolicy, Resident, decayed, plan_room
from engine.ledger import Ledger
from tests.unit.engine.watching import Pool

AT_ONCE = EvictionPolicy(min_stay_s=0.0, longest_hold_s=0.0)


def resident(model: str, size: int = 100, **fields: Any) -> Resident:
    values: dict[str, Any] = {
        "pinned": False,
        "wanted": False,
        "loaded": 0.0,
        "used": 0.0,
        "reload_s": 1.0,
        "demand": 1.0,
    }
    return Resident(model=model, bytes=size, **(values | fields))


def victims(need: int, free: int, *residents: Resident, policy: EvictionPolicy = AT_ONCE) -> tuple[str, ...] | None:
    plan = plan_room(need, free, residents, asked=0.0, now=100.0, policy=policy)
    return None if plan is None else plan.victims


def test_nobody_leaves_where_there_is_room() -> None:
    assert victims(50, 50, resident("a")) == ()


def test_the_least_valuable_for_its_bytes_leaves_first() -> None:
    dear = resident("dear", reload_s=10.0)
    popular = resident("popular", demand=10.0)
    plain = resident("plain")
    assert victims(100, 0, dear, popular, plain) == ("plain",)


def test_a_small_model_is_worth_more_for_its_bytes() -> None:
    assert victims(50, 0, resident("small", 50), resident("large", 500)) == ("large",)


def test_of_equal_value_the_longest_unused_leaves() -> None:
    assert victims(100, 0, resident("new", used=9.0), resident("old", used=1.0)) == ("old",)


def test_last_use_alone_decides_under_lru() -> None:
    policy = EvictionPolicy(order=EvictionOrder.LRU, min_stay_s=0.0)
    old, new = resident("old", used=1.0, reload_s=60.0), resident("new", used=9.0, reload_s=0.1)
    assert victims(100, 0, new, old, policy=policy) == ("old",)


def test_pinned_models_never_leave() -> None:
    assert victims(100, 0, resident("pinned", pinned=True, demand=0.0), resident("other")) == ("other",)


def test_nobody_leaves_if_that_makes_no_room() -> None:
    assert victims(300, 0, resident("a"), resident("b"), resident("c", pinned=True)) is None


def test_one_that_nobody_waits_for_leaves_before_one_with_work_waiting() -> None:
    busy = resident("busy", wanted=True, reload_s=0.01)
    idle = resident("idle", reload_s=60.0)
    assert victims(100, 0, busy, idle) == ("idle",)


def test_a_victim_that_a_later_one_makes_needless_stays() -> None:
    assert victims(150, 0, resident("small", 60, demand=0.1), resident("large", 200, demand=5.0)) == ("large",)


def test_a_model_without_bytes_is_never_a_victim() -> None:
    assert victims(100, 0, resident("weightless", 0), resident("heavy")) == ("heavy",)


def test_a_busy_model_stays_for_as_long_as_its_load_took() -> None:
    busy = resident("busy", wanted=True, loaded=98.0, used=99.0, reload_s=5.0)
    plan = plan_room(100, 0, [busy], asked=0.0, now=100.0, policy=EvictionPolicy(min_stay_s=2.0))
    assert plan is not None
    assert plan.at == 103.0


def test_an_idle_model_that_comes_back_quickly_may_leave_quickly() -> None:
    idle = resident("idle", loaded=100.0, reload_s=0.1)
    plan = plan_room(100, 0, [idle], asked=100.0, now=100.0, policy=EvictionPolicy(min_stay_s=2.0))
    assert plan is not None
    assert plan.at == 100.1


def test_a_newcomer_waits_at_most_what_reloading_its_victim_costs() -> None:
    busy = resident("busy", wanted=True, loaded=0.0, used=99.0, reload_s=5.0)
    plan = plan_room(100, 0, [busy], asked=99.0, now=100.0)
    assert plan is not None
    assert plan.at == 104.0


def test_no_hold_is_longer_than_the_longest() -> None:
    busy = resident("busy", wanted=True, loaded=100.0, used=101.0, reload_s=500.0)
    plan = plan_room(100, 0, [busy], asked=100.0, now=100.0, policy=EvictionPolicy(longest_hold_s=30.0))
    assert plan is not None
    assert plan.at == 130.0


def test_a_model_that_has_not_served_yet_stays_for_the_longest_hold() -> None:
    fresh = resident("fresh", wanted=True, loaded=99.0, used=50.0, reload_s=0.01)
    plan = plan_room(100, 0, [fresh], asked=0.0, now=100.0, policy=EvictionPolicy(longest_hold_s=30.0))
    assert plan is not None
    assert plan.at == 129.0


def test_demand_halves_with_each_half_life() -> None:
    assert decayed(8.0, 120.0, EvictionPolicy(half_life_s=60.0)) == 2.0


_RESIDENTS = st.lists(
    st.builds(
        lambda size, pinned, wanted, used, reload_s, demand: (size, pinned, wanted, used, reload_s, demand),
        st.integers(0, 1000),
        st.booleans(),
        st.booleans(),
        st.floats(0, 100),
        st.floats(0.001, 100),
        st.floats(0, 100),
    ),
    max_size=12,
)


@given(_RESIDENTS, st.integers(0, 5000), st.integers(-500, 1000))
def test_a_plan_makes_the_room_spares_the_pinned_and_has_no_needless_victim(
    rows: list[tuple[int, bool, bool, float, float, float]], need: int, free: int
) -> None:
    models = {
        f"m{i}": resident(f"m{i}", size, pinned=pinned, wanted=wanted, used=used, reload_s=reload_s, demand=demand)
        for i, (size, pinned, wanted, used, reload_s, demand) in enumerate(rows)
    }
    plan = plan_room(need, free, models.values(), asked=0.0, now=200.0, policy=AT_ONCE)
    evictable = sum(m.bytes for m in models.values() if not m.pinned)
    assert (plan is None) == (free + evictable < need)
    if plan is not None:
        gone = [models[name] for name in plan.victims]
        assert not any(m.pinned for m in gone)
        assert free + sum(m.bytes for m in gone) >= need
        for m in gone:
            assert free + sum(other.bytes for other in gone if other is not m) < need


def test_the_ledger_counts_weights_and_what_is_lent() -> None:
    ledger = Ledger(1000)
    ledger.hold("a", 300, 50)
    ledger.lend(100)
    assert (ledger.weights, ledger.lendable, ledger.held("a")) == (300, 600, 300)
    ledger.lend(-100)
    ledger.free("a")
    assert (ledger.weights, ledger.lendable, ledger.held("a")) == (0, 1000, 0)


def test_room_for_weights_leaves_the_largest_activation_floor_free() -> None:
    ledger = Ledger(1000)
    ledger.hold("a", 300, 200)
    assert ledger.room(floor=50) == 500
    assert ledger.room(floor=400) == 300


def test_a_correction_after_the_measurement_replaces_the_estimate() -> None:
    ledger = Ledger(1000)
    ledger.hold("a", 300, 0)
    ledger.hold("a", 1200, 0)
    assert ledger.excess == 200


def test_what_fits_beside_pinned_models_fits_ever() -> None:
    ledger = Ledger(1000)
    assert ledger.fits_ever(900, 100)
    assert not ledger.fits_ever(901, 100)
    assert not ledger.fits_ever(600, 100, beside=301)


@pytest.fixture
def pool() -> Pool:
    return Pool(1000)


def test_what_leaves_makes_room_before_it_has_gone() -> None:
    ledger = Ledger(1000)
    ledger.hold("a", 600, 0)
    assert ledger.room(0) == 400
    ledger.leave("a")
    assert (ledger.room(0), ledger.weights) == (1000, 600)


def test_room_that_was_promised_is_promised_once() -> None:
    ledger = Ledger(1000)
    ledger.reserve("a", 600, 50)
    assert ledger.room(0) == 350


def test_a_promise_is_kept_once_who_leaves_has_gone(pool: Pool) -> None:
    ledger = Ledger(1000, pool)
    ledger.hold("old", 800, 0)
    ledger.leave("old")
    ledger.reserve("new", 700, 0)
    assert not ledger.given_up("new")
    assert not ledger.take("new")
    assert pool.share.held == 800
    ledger.free("old")
    assert ledger.given_up("new")
    assert ledger.take("new")
    assert pool.share == Share(700, 700)


def test_what_was_loaded_is_not_pending_any_more(pool: Pool) -> None:
    ledger = Ledger(1000, pool)
    ledger.reserve("a", 300, 50)
    ledger.take("a")
    ledger.hold("a", 310, 50)
    assert pool.share == Share(360, 50)


def test_on_a_device_without_memory_all_stays_pending(pool: Pool) -> None:
    ledger = Ledger(1000, pool, phantom=True)
    ledger.hold("a", 300, 50)
    assert pool.share == Share(350, 350)


def test_a_batch_within_what_earlier_ones_took_asks_nobody(pool: Pool) -> None:
    ledger = Ledger(1000, pool)
    ledger.hold("a", 300, 50)
    ledger.lend(200, "a")
    ledger.lend(-200, "a")
    asked = pool.asked
    for size in (50, 200, 120):
        assert ledger.try_lend(size, "a")
        assert ledger.lent_to("a") == size
        ledger.lend(-size, "a")
    assert pool.asked == asked
    assert pool.share.held == 500


def test_what_batches_no_longer_need_is_given_back(pool: Pool) -> None:
    ledger = Ledger(1000, pool)
    ledger.hold("a", 300, 50)
    ledger.lend(200)
    ledger.refresh()
    assert pool.share.held == 500
    ledger.lend(-200)
    ledger.refresh()
    assert pool.share.held == 350


def test_a_batch_that_the_account_has_no_room_for_gets_nothing(pool: Pool) -> None:
    ledger = Ledger(1000, pool)
    ledger.hold("a", 300, 50)
    pool.taken = 600
    assert not ledger.try_lend(101)
    assert (ledger.lent, pool.share.held) == (0, 350)
    assert ledger.lendable == 100
    assert ledger.try_lend(100)


def test_what_others_hold_bounds_what_can_be_lent_and_loaded(pool: Pool) -> None:
    pool.taken = 400
    ledger = Ledger(900, pool)
    ledger.hold("a", 300, 50)
    assert (ledger.lendable, ledger.room(0), ledger.reach()) == (300, 250, 900)
    pool.total = 800
    ledger.refresh()
    assert (ledger.lendable, ledger.room(0), ledger.reach()) == (100, 50, 800)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reserve", "take", "hold", "free", "leave", "lend", "return", "refresh"]),
            st.sampled_from("abc"),
            st.integers(0, 400),
        ),
        max_size=40,
    )
)
def test_the_share_covers_all_that_was_taken_and_lent(steps: list[tuple[str, str, int]]) -> None:
    pool = Pool(1000)
    ledger = Ledger(1000, pool)
    promised: set[str] = set()
    lent: list[int] = []
    for step, model, size in steps:
        if step == "reserve" and not ledger.held(model):
            ledger.reserve(model, size, 10)
            promised.add(model)
        elif step == "take" and model in promised:
            ledger.take(model)
        elif step == "hold":
            ledger.hold(model, size, 10)
            promised.discard(model)
        elif step == "free":
            ledger.free(model)
            promised.discard(model)
        elif step == "leave":
            ledger.leave(model)
        elif step == "lend" and ledger.try_lend(size):
            lent.append(size)
        elif step == "return" and lent:
            ledger.lend(-lent.pop())
        elif step == "refresh":
            ledger.refresh()
        loaded = sum(ledger.held(name) for name in "abc" if name not in promised)
        assert pool.share.held >= loaded + ledger.lent
        assert 0 <= pool.share.pending <= pool.share.held
        assert ledger.lent == sum(lent)
