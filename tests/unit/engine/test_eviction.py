from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.eviction import (
    EvictionOrder,
    EvictionPolicy,
    Newcomer,
    Plan,
    Resident,
    decayed,
    plan_room,
)

POLICY = EvictionPolicy()


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


def newcomer(due: float = 0.0, **fields: Any) -> Newcomer:
    values: dict[str, Any] = {"waiting": 1, "reload_s": 1.0}
    return Newcomer(due, **(values | fields))


def victims(need: int, free: int, *residents: Resident, policy: EvictionPolicy = POLICY) -> tuple[str, ...] | None:
    plan = plan_room(need, free, residents, now=100.0, policy=policy)
    return None if plan is None else plan.victims


def at(victim: Resident, coming: Newcomer, now: float = 100.0, policy: EvictionPolicy = POLICY) -> float:
    """When the one resident may leave for the newcomer."""
    plan = plan_room(100, 0, [victim], newcomer=coming, now=now, policy=policy)
    assert plan is not None
    return plan.at


def test_nobody_leaves_where_there_is_room() -> None:
    assert victims(50, 50, resident("a")) == ()


def test_those_that_go_in_any_case_go_first_and_spare_others() -> None:
    dear, plain = resident("dear", reload_s=10.0), resident("plain")
    for need, leave in ((50, ("dear",)), (100, ("dear",)), (150, ("dear", "plain"))):
        plan = plan_room(need, 0, [plain, dear], now=100.0, going={"dear"})
        assert plan == Plan(leave, 100.0)
    assert plan_room(50, 60, [plain, dear], now=100.0, going={"dear"}) == Plan(("dear",), 100.0)


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
    policy = EvictionPolicy(order=EvictionOrder.LRU)
    old, new = resident("old", used=1.0, reload_s=60.0), resident("new", used=9.0, reload_s=0.1)
    assert victims(100, 0, new, old, policy=policy) == ("old",)


def test_to_come_is_a_use_under_lru() -> None:
    policy = EvictionPolicy(order=EvictionOrder.LRU)
    old, fresh = resident("old", used=5.0), resident("fresh", used=1.0, loaded=9.0)
    assert victims(100, 0, fresh, old, policy=policy) == ("old",)


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


def test_room_that_is_needed_at_once_keeps_no_stay() -> None:
    fresh = resident("fresh", wanted=True, loaded=99.9, reload_s=20.0)
    assert plan_room(100, 0, [fresh], now=100.0) == Plan(("fresh",), 100.0)


def test_a_busy_model_stays_for_as_long_as_its_load_took() -> None:
    assert at(resident("busy", wanted=True, loaded=98.0, used=99.0, reload_s=5.0), newcomer()) == 103.0


def test_an_idle_model_that_comes_back_quickly_may_leave_quickly() -> None:
    assert at(resident("idle", loaded=100.0, reload_s=0.1), newcomer()) == 100.1


def test_a_model_that_has_not_served_yet_stays_for_the_longest_hold() -> None:
    assert at(resident("fresh", wanted=True, loaded=99.0, used=50.0, reload_s=0.01), newcomer()) == 129.0


def test_no_hold_is_longer_than_the_longest() -> None:
    assert at(resident("busy", wanted=True, loaded=100.0, used=101.0, reload_s=500.0), newcomer(100.0)) == 130.0


def test_a_newcomer_waits_as_much_as_the_victims_items_will() -> None:
    # A use a second (demand x ln 2 / half-life), away for 2 + 4 s: 18 item-seconds.
    victim = resident("v", reload_s=4.0, demand=120.0 / 0.6931471805599453)
    assert at(victim, newcomer(99.0, reload_s=2.0)) == pytest.approx(117.0)
    assert at(victim, newcomer(99.0, reload_s=2.0, waiting=6)) == pytest.approx(102.0)


def test_a_newcomer_takes_a_useless_models_place_at_once() -> None:
    assert at(resident("useless", demand=0.0), newcomer(100.0)) == 100.0


@pytest.mark.parametrize(("reload_s", "pause"), [(0.1, 0.6), (0.5, 15.0), (1.0, 60.0), (9.0, 60.0)])
def test_one_that_was_sent_away_pauses_with_the_square_of_its_load(reload_s: float, pause: float) -> None:
    coming = newcomer(100.0, reload_s=reload_s, displaced=90.0)
    assert at(resident("idle", demand=0.0), coming, now=90.0 + pause / 2) == pytest.approx(max(100.0, 90.0 + pause))


def test_a_pause_holds_though_there_is_room() -> None:
    assert plan_room(100, 100, [], newcomer=newcomer(95.0, displaced=80.0), now=100.0) == Plan((), 140.0)


@pytest.mark.parametrize(
    ("fields", "until"),
    [({}, 100.0), ({"wanted": True}, 140.0), ({"leased": True}, 140.0)],
    ids=["idle", "wanted", "leased"],
)
def test_one_that_alone_wants_the_loader_pauses_only_for_a_victim_in_use(fields: dict[str, Any], until: float) -> None:
    victim = resident("v", demand=0.0, **fields)
    assert at(victim, newcomer(95.0, displaced=80.0, alone=True)) == until


def test_one_that_alone_wants_the_loader_comes_into_free_room_at_once() -> None:
    coming = newcomer(95.0, displaced=80.0, alone=True)
    assert plan_room(100, 100, [], newcomer=coming, now=100.0) == Plan((), 100.0)


def test_one_that_left_by_itself_comes_back_at_once() -> None:
    assert plan_room(100, 100, [], newcomer=newcomer(95.0), now=100.0) == Plan((), 100.0)


def first(*coming: Newcomer, now: float = 100.0, policy: EvictionPolicy = POLICY) -> Newcomer:
    """Which of the newcomers comes first."""
    return min(coming, key=lambda one: one.rank(now, policy))


def test_many_items_come_before_few() -> None:
    many = newcomer(90.0, waiting=20)
    assert first(newcomer(90.0, waiting=2), many) is many


def test_a_short_load_comes_before_a_long_one() -> None:
    short = newcomer(90.0, reload_s=1.0)
    assert first(newcomer(90.0, reload_s=8.0), short) is short


def test_a_long_wait_comes_before_a_short_one() -> None:
    old = newcomer(50.0)
    assert first(newcomer(90.0), old) is old


def test_one_that_can_wait_comes_after_all_that_are_due() -> None:
    due = newcomer(99.0, reload_s=8.0)
    assert first(newcomer(101.0, waiting=1000), due) is due


def test_one_that_is_overdue_comes_before_any_crowd() -> None:
    lone = newcomer(0.0, reload_s=8.0)
    assert first(newcomer(20.0, waiting=10**6, reload_s=0.01), lone, now=120.0) is lone


def test_demand_halves_with_each_half_life() -> None:
    assert decayed(8.0, 120.0, EvictionPolicy(half_life_s=60.0)) == 2.0


_RESIDENT = st.builds(
    resident,
    st.just(""),
    st.integers(0, 1000),
    pinned=st.booleans(),
    wanted=st.booleans(),
    loaded=st.floats(0, 200),
    used=st.floats(0, 200),
    reload_s=st.floats(0.001, 100),
    demand=st.floats(0, 1e6),
)
_NEWCOMER = st.builds(
    Newcomer,
    due=st.floats(0, 200),
    waiting=st.integers(1, 10**6),
    reload_s=st.floats(0.001, 100),
    displaced=st.none() | st.floats(0, 200),
)
_ORDERS = st.sampled_from(EvictionOrder)


def _named(residents: list[Resident]) -> dict[str, Resident]:
    return {
        f"m{i}": Resident(f"m{i}", r.bytes, r.pinned, r.wanted, r.loaded, r.used, r.reload_s, r.demand)
        for i, r in enumerate(residents)
    }


@given(st.lists(_RESIDENT, max_size=12), st.integers(0, 5000), st.integers(-500, 1000), _ORDERS)
def test_a_plan_makes_the_room_spares_the_pinned_and_has_no_needless_victim(
    residents: list[Resident], need: int, free: int, order: EvictionOrder
) -> None:
    models = _named(residents)
    plan = plan_room(need, free, models.values(), now=200.0, policy=EvictionPolicy(order=order))
    evictable = sum(m.bytes for m in models.values() if not m.pinned)
    assert (plan is None) == (free + evictable < need)
    if plan is not None:
        gone = [models[name] for name in plan.victims]
        assert not any(m.pinned for m in gone)
        assert free + sum(m.bytes for m in gone) >= need
        for m in gone:
            assert free + sum(other.bytes for other in gone if other is not m) < need


@given(st.lists(_RESIDENT, max_size=12), st.integers(0, 5000), _NEWCOMER)
def test_no_newcomer_is_held_beyond_the_stated_bound(residents: list[Resident], need: int, coming: Newcomer) -> None:
    models = _named(residents)
    plan = plan_room(need, 100, models.values(), newcomer=coming, now=200.0)
    if plan is None:
        return
    hold = POLICY.longest_hold_s
    bounds = [200.0, coming.due + hold, *(models[name].loaded + hold for name in plan.victims)]
    if coming.displaced is not None:
        bounds.append(coming.displaced + POLICY.pace_s)
    assert 200.0 <= plan.at <= max(bounds)


@given(st.lists(_RESIDENT, max_size=12), st.integers(0, 5000), _NEWCOMER)
def test_every_victim_has_had_its_stay(residents: list[Resident], need: int, coming: Newcomer) -> None:
    models = _named(residents)
    plan = plan_room(need, 100, models.values(), newcomer=coming, now=200.0)
    for victim in [models[name] for name in plan.victims] if plan else []:
        assert plan is not None
        stay = POLICY.min_stay_s if victim.wanted else min(POLICY.min_stay_s, victim.reload_s)
        assert plan.at >= victim.loaded + stay


@given(st.lists(_NEWCOMER, min_size=2, max_size=12), st.floats(0, 400))
def test_those_overdue_come_first_and_in_the_order_of_asking(coming: list[Newcomer], now: float) -> None:
    order = sorted(coming, key=lambda one: one.rank(now, POLICY))
    late = [one.due for one in coming if one.overdue(now, POLICY)]
    assert [one.due for one in order[: len(late)]] == sorted(late)
