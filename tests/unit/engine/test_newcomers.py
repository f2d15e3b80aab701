from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from engine.device import FakeDevice
from engine.eviction import EvictionPolicy
from engine.placement import Placement
from engine.slot import Slot
from engine.snapshot import Phase, Reason
from engine.types import Footprint

WAITING: Mapping[str, int] = {"crowded": 50}


@pytest.fixture
def placement() -> Placement:
    return Placement(FakeDevice(), 100, (), EvictionPolicy(), waiting=lambda model: WAITING.get(model, 1))


def wanted(placement: Placement, model: str, size: int = 50, **fields: Any) -> Slot:
    slot = placement.slot(model)
    slot.footprint, slot.work, slot.load_s = Footprint(size), True, 1.0
    for name, value in fields.items():
        setattr(slot, name, value)
    return slot


def there(placement: Placement, model: str, size: int = 50, **fields: Any) -> Slot:
    slot = wanted(placement, model, size, **({"phase": Phase.RESIDENT, "work": False} | fields))
    placement.ledger.hold(model, size, 0)
    return slot


def test_the_one_that_most_items_wait_for_comes_first(placement: Placement) -> None:
    wanted(placement, "lone", asked=50.0)
    crowded = wanted(placement, "crowded", asked=90.0)
    assert placement.next_load(100.0) == (crowded, None)


def test_bulk_work_is_one_item_however_much_it_is(placement: Placement) -> None:
    lone = wanted(placement, "lone", asked=90.0)
    wanted(placement, "crowded", asked=75.0, patience=10.0)
    assert placement.next_load(100.0)[0] is not lone
    wanted(placement, "crowded", asked=85.0, patience=10.0)
    assert placement.next_load(100.0) == (lone, None)


def test_nobody_takes_the_room_that_one_overdue_waits_for(placement: Placement) -> None:
    there(placement, "served", loaded=0.0, used=0.0)
    there(placement, "fresh", loaded=99.0, used=0.0, work=True)
    wanted(placement, "large", 100, asked=-100.0)
    wanted(placement, "crowded", asked=90.0)
    assert placement.next_load(100.0) == (None, 29.0)


def test_one_that_waits_for_others_memory_holds_nobody_up(placement: Placement) -> None:
    wanted(placement, "starved", asked=-100.0, starved=90.0, again=101.0)
    crowded = wanted(placement, "crowded", asked=90.0)
    assert placement.next_load(100.0) == (crowded, None)


def test_one_sent_away_for_another_pauses(placement: Placement) -> None:
    slot = wanted(placement, "a", asked=100.0, loaded=90.0)
    slot.departed(Reason.ROOM, "b", 99.0)
    wanted(placement, "b", phase=Phase.LOADING)
    assert placement.next_load(100.0) == (None, 50.0)


def test_one_that_alone_wants_the_loader_does_not_pause(placement: Placement) -> None:
    slot = wanted(placement, "a", asked=100.0, loaded=90.0)
    slot.departed(Reason.ROOM, "b", 99.0)
    assert placement.next_load(100.0) == (slot, None)


def test_one_that_left_unused_does_not_pause(placement: Placement) -> None:
    slot = wanted(placement, "a", loaded=90.0)
    slot.departed(Reason.IDLE, None, 99.0)
    assert placement.next_load(100.0) == (slot, None)


def test_a_copy_back_pauses_for_what_a_copy_takes(placement: Placement) -> None:
    slot = wanted(placement, "a", loaded=90.0, phase=Phase.PARKED, restores=1, restore_s=0.1, host=50)
    slot.departed(Reason.ROOM, "b", 90.2)
    wanted(placement, "b", phase=Phase.LOADING)
    assert placement.next_load(90.5)[1] == pytest.approx(0.1)
    assert placement.next_load(90.7) == (slot, None)
