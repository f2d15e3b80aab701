from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.eviction import EvictionOrder, EvictionPolicy, Resident, decayed, plan_room
from engine.ledger import Ledger

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
