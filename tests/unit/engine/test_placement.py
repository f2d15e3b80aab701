from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.adapters.base import Place
from engine.device import CpuDevice, FakeDevice
from engine.errors import LoadReason, ModelTooLarge
from engine.eviction import EvictionPolicy
from engine.placement import Placement
from engine.slot import Slot
from engine.snapshot import Departure, Phase, Reason
from engine.types import Footprint
from tests.unit.engine.watching import Pool

Resident = Callable[..., Slot]


@pytest.fixture
def pool() -> Pool:
    return Pool(10_000)


@pytest.fixture
def placement(pool: Pool) -> Placement:
    policy = EvictionPolicy(min_stay_s=0.0)
    return Placement(
        FakeDevice(), 1000, ["pinned"], policy, account=pool, host_bytes=500, keep_alive_s=60.0, foreign_wait_s=5.0
    )


def there(placement: Placement, model: str, size: int, **fields: Any) -> Slot:
    slot = wanted(placement, model, size)
    slot.phase, slot.work, slot.measured = Phase.RESIDENT, False, size
    for name, value in fields.items():
        setattr(slot, name, value)
    placement.book(slot).hold(model, size, slot.floor)
    return slot


def wanted(placement: Placement, model: str, size: int) -> Slot:
    slot = placement.slot(model)
    slot.footprint, slot.work = Footprint(size), True
    return slot


def test_a_model_is_idle_once_its_keep_alive_has_ended(placement: Placement) -> None:
    slot = there(placement, "a", 100, loaded=10.0, used=20.0)
    assert placement.next_idle(79.0) == (None, 1.0)
    assert placement.next_idle(80.0) == (slot, None)


def test_its_own_keep_alive_goes_before_the_setting(placement: Placement) -> None:
    slot = there(placement, "a", 100, loaded=10.0, keep_alive_s=0.0)
    assert placement.next_idle(10.0) == (slot, None)


@pytest.mark.parametrize("why", [{"leases": 1}, {"work": True}, {"pinned": True}, {"keep_alive_s": None}])
def test_what_is_held_wanted_or_pinned_is_never_idle(placement: Placement, why: dict[str, Any]) -> None:
    there(placement, "a", 100, **why)
    assert placement.next_idle(1e9) == (None, None)


def test_a_model_that_was_restored_counts_its_keep_alive_from_then(placement: Placement) -> None:
    there(placement, "a", 100, loaded=100.0, used=20.0)
    assert placement.next_idle(120.0) == (None, 40.0)


@pytest.fixture
def sent_away(placement: Placement) -> Slot:
    """A model that is wanted again, two seconds after it was loaded, for a second, and then sent away for another."""
    there(placement, "other", 600, loaded=100.0, used=101.0, load_s=1.0)
    slot = wanted(placement, "a", 600)
    slot.loaded, slot.load_s, slot.asked = 98.0, 1.0, 101.0
    slot.departure = Departure(99.0, Reason.ROOM, "other")
    return slot


def test_one_that_nobody_competes_with_comes_back_without_a_pause(placement: Placement, sent_away: Slot) -> None:
    assert placement.next_load(102.0) == (sent_away, None)
    assert placement.held_back(102.0) == {}


def test_one_that_shares_the_loader_pauses_and_tells_until_when(placement: Placement, sent_away: Slot) -> None:
    coming = wanted(placement, "coming", 10)
    coming.phase = Phase.LOADING
    assert placement.next_load(102.0) == (None, 56.0)
    assert placement.held_back(102.0) == {"a": 158.0}


def test_one_pauses_while_another_waits_for_the_loader(placement: Placement, sent_away: Slot) -> None:
    second = wanted(placement, "second", 600)
    second.loaded, second.load_s, second.asked, second.departure = 90.0, 1.0, 101.0, sent_away.departure
    assert placement.next_load(102.0) == (None, 48.0)


def test_one_that_waits_for_other_workers_memory_makes_nobody_pause(placement: Placement, sent_away: Slot) -> None:
    starved = wanted(placement, "starved", 900)
    starved.starved, starved.again = 101.0, 103.0
    assert placement.next_load(102.0) == (sent_away, None)


@pytest.mark.parametrize("why", [{"leases": 1}, {"work": True}])
def test_one_pauses_while_the_victim_is_in_use(placement: Placement, sent_away: Slot, why: dict[str, Any]) -> None:
    for name, value in why.items():
        setattr(placement.slot("other"), name, value)
    assert placement.held_back(102.0) == {"a": 158.0}


def test_what_leaves_is_room_for_the_next_newcomer(placement: Placement) -> None:
    there(placement, "old", 900)
    first, second = wanted(placement, "first", 500), wanted(placement, "second", 400)
    plan = placement.plan_for(first, 100.0)
    assert plan is not None
    assert plan.victims == ("old",)
    placement.send_off(plan)
    placement.ledger.reserve("first", 500, 0)
    also = placement.plan_for(second, 100.0)
    assert also is not None
    assert also.victims == ()
    third = wanted(placement, "third", 600)
    assert placement.plan_for(third, 100.0) is None


def test_what_a_victim_keeps_free_for_its_batches_is_room_for_the_newcomer(placement: Placement) -> None:
    there(placement, "small", 50, floor=100, demand=1.0, load_s=1.0)
    there(placement, "greedy", 450, floor=400, demand=1e9, load_s=1.0)
    newcomer = wanted(placement, "a", 750)
    plan = placement.plan_for(newcomer, 100.0)
    assert plan is not None
    assert plan.victims == ("greedy",)
    newcomer.footprint = Footprint(851)
    plan = placement.plan_for(newcomer, 100.0)
    assert plan is not None
    assert plan.victims == ("greedy", "small")


def test_what_a_pinned_model_keeps_free_for_its_batches_is_nobodys_room(placement: Placement) -> None:
    there(placement, "pinned", 100, pinned=True, floor=400)
    there(placement, "greedy", 300, floor=500)
    newcomer = wanted(placement, "a", 500)
    plan = placement.plan_for(newcomer, 100.0)
    assert plan is not None
    assert plan.victims == ("greedy",)
    newcomer.footprint = Footprint(501)
    assert placement.plan_for(newcomer, 100.0) is None


def test_what_others_hold_on_the_device_bounds_a_plan(placement: Placement, pool: Pool) -> None:
    pool.taken = 9_700
    placement.ledger.refresh()
    there(placement, "small", 100)
    fits, too_much = wanted(placement, "fits", 300), wanted(placement, "too_much", 301)
    plan = placement.plan_for(fits, 100.0)
    assert plan is not None
    assert plan.victims == ("small",)
    assert placement.plan_for(too_much, 100.0) is None


def test_a_load_waits_for_what_other_workers_hold(placement: Placement, pool: Pool) -> None:
    pool.taken = 9_900
    slot = wanted(placement, "a", 500)
    placement.ledger.refresh()
    for now in (100.0, 200.0, 10_000.0):
        assert placement.starve(slot, now) is None
        assert slot.again == now + 1.0
        assert placement.next_load(now) == (None, 1.0)


def test_a_load_that_others_leave_no_room_for_tells_them_until_it_is_not_wanted(
    placement: Placement, pool: Pool
) -> None:
    pool.taken = 9_900
    slot = wanted(placement, "a", 500)
    placement.ledger.refresh()
    assert placement.starve(slot, 100.0) is None
    placement.next_load(100.0)
    assert pool.wanted == 500
    slot.work = False
    placement.next_load(101.0)
    assert pool.wanted == 0


def test_what_is_idle_leaves_where_another_worker_waits_for_room(placement: Placement, pool: Pool) -> None:
    slot = there(placement, "a", 100, keep_alive_s=None)
    assert placement.next_idle(100.0) == (None, None)
    pool.waited_for = 9_950
    assert placement.next_idle(100.0) == (slot, None)


def test_on_a_cpu_what_is_parked_goes_before_what_is_there(pool: Pool) -> None:
    placement = Placement(CpuDevice(), 1000, (), EvictionPolicy(min_stay_s=0.0), account=pool, host_bytes=500)
    there(placement, "a", 100)
    parked = placement.slot("parked")
    parked.phase, parked.host = Phase.PARKED, 300
    pool.total = 50
    placement.ledger.refresh()
    assert placement.next_idle(100.0) == (parked, None)
    assert placement.why_idle(parked) is Reason.OVER


@pytest.mark.parametrize("why", [{"leases": 1}, {"work": True}, {"pinned": True}])
def test_what_is_in_use_or_pinned_stays_though_another_worker_waits(
    placement: Placement, pool: Pool, why: dict[str, Any]
) -> None:
    there(placement, "a", 100, **why)
    pool.waited_for = 9_950
    assert placement.next_idle(1e9) == (None, None)


def test_a_load_does_not_wait_for_ever_for_what_is_foreign(placement: Placement, pool: Pool) -> None:
    pool.total = 300
    slot = wanted(placement, "a", 500)
    placement.ledger.refresh()
    assert placement.starve(slot, 100.0) is None
    assert placement.starve(slot, 104.5) is None
    assert slot.again == 105.0
    failure = placement.starve(slot, 105.0)
    assert failure is not None
    assert failure.reason is LoadReason.OUT_OF_MEMORY
    assert "other workers hold 0; foreign, pid 1 has all of it" in failure.message


def test_parked_models_of_least_value_give_way(placement: Placement) -> None:
    for model, demand in (("rare", 1.0), ("busy", 50.0)):
        slot = placement.slot(model)
        slot.phase, slot.host, slot.demand, slot.load_s = Phase.PARKED, 200, demand, 1.0
        placement.host.hold(model, 200, 0)
    newcomer = there(placement, "new", 300, parks=True, demand=10.0, load_s=1.0)
    assert placement.plan_park(newcomer, 300, 0.0) == ("rare",)


def test_a_newcomer_of_less_value_than_those_parked_is_not_parked(placement: Placement) -> None:
    slot = placement.slot("busy")
    slot.phase, slot.host, slot.demand, slot.load_s = Phase.PARKED, 400, 50.0, 1.0
    placement.host.hold("busy", 400, 0)
    newcomer = there(placement, "new", 300, parks=True, demand=1.0, load_s=1.0)
    assert placement.plan_park(newcomer, 300, 0.0) is None


def test_host_bound_models_are_in_the_hosts_books(placement: Placement) -> None:
    parser = there(placement, "parser", 400, place=Place.HOST)
    assert (placement.host.weights, placement.ledger.weights) == (400, 0)
    newcomer = wanted(placement, "ocr", 300)
    newcomer.place = Place.HOST
    there(placement, "encoder", 300)
    plan = placement.plan_for(newcomer, 100.0)
    assert plan is not None
    assert plan.victims == (parser.model,)


def test_a_host_bound_model_that_never_fits_names_the_hosts_setting(placement: Placement) -> None:
    slot = wanted(placement, "ocr", 501)
    slot.place = Place.HOST
    with pytest.raises(ModelTooLarge, match="ROOST_HOST_BUDGET"):
        placement.check_size(slot, 501)


def test_parked_models_are_room_for_host_bound_ones(placement: Placement) -> None:
    parked = placement.slot("parked")
    parked.phase, parked.host = Phase.PARKED, 400
    placement.host.hold("parked", 400, 0)
    slot = wanted(placement, "ocr", 500)
    slot.place = Place.HOST
    plan = placement.plan_for(slot, 0.0)
    assert plan is not None
    assert plan.victims == ()
