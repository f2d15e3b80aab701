"""Whatever comes, leaves, runs and is called off, in any order: budget, host budget and account are never passed."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.device import FakeDevice
from engine.eviction import EvictionPolicy
from engine.placement import Placement
from engine.slot import Slot
from engine.snapshot import Phase, Reason
from engine.types import Footprint
from tests.unit.engine.watching import Pool

BUDGET, HOST, TOTAL = 1000, 700, 1300
SIZES = {"a": 150, "b": 250, "c": 350, "d": 450, "e": 600, "pinned": 200}
FLOORS = {"a": 10, "b": 200, "c": 30, "d": 100, "e": 50, "pinned": 20}
STEPS = ["want", "begin", "leave", "arrive", "call off", "lend", "return", "relieve", "others", "refresh"]


@dataclass
class Play:
    """The steps of two loaders, lanes and another worker, one at a time, as `engine.loading` and `engine.lanes` do."""

    pool: Pool = field(default_factory=lambda: Pool(TOTAL))
    now: float = 0.0
    coming: list[Slot] = field(default_factory=list)
    arriving: list[Slot] = field(default_factory=list)
    loans: list[tuple[Slot, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        policy = EvictionPolicy(min_stay_s=0.0, longest_hold_s=0.0, pace_s=0.0)
        self.placement = Placement(FakeDevice(), BUDGET, ["pinned"], policy, account=self.pool, host_bytes=HOST)
        self.ledger = self.placement.ledger
        for name, size in SIZES.items():
            slot = self.placement.slot(name)
            slot.footprint, slot.floor, slot.parks = Footprint(size), FLOORS[name], name in "abe"

    def step(self, what: str, name: str, size: int) -> None:
        """One step of the model, or of another one if only others can do it."""
        self.now += 1.0
        slot = self.placement.slot(name)
        able = self._able(what)
        if able and slot not in able:
            slot = able[size % len(able)]
        match what:
            case "want":
                slot.work = True
            case "begin":
                self._begin()
            case "leave":
                self._leave(slot)
            case "arrive":
                self._arrive(slot)
            case "call off":
                self._call_off(slot)
            case "lend":
                if slot.phase is Phase.RESIDENT and self.ledger.try_lend(size, slot.model):
                    slot.leases, slot.work = slot.leases + 1, False
                    self.loans.append((slot, size))
            case "return":
                if self.loans:
                    slot, count = self.loans.pop(size % len(self.loans))
                    slot.leases -= 1
                    self.ledger.lend(-count, slot.model)
            case "relieve":
                plan = self.placement.plan_relief(self.now)
                self.placement.send_off(plan) if plan else None
            case "others":
                self.pool.taken = min(size, TOTAL - self.pool.share.held)
            case _:
                self.ledger.refresh()

    def _able(self, what: str) -> list[Slot]:
        slots = self.placement.slots.values()
        match what:
            case "leave":
                return [s for s in slots if s.phase is Phase.LEAVING and not s.leases]
            case "arrive" | "call off":
                return self.coming + self.arriving
            case "lend":
                return [s for s in slots if s.phase is Phase.RESIDENT]
        return []

    def _begin(self) -> None:
        slot, _ = self.placement.next_load(self.now)
        if slot is None or len(self.coming) + len(self.arriving) == 2:
            return
        plan = self.placement.plan_for(slot, self.now)
        if plan is None:
            self.placement.starve(slot, self.now)
            return
        slot.phase = Phase.LOADING
        self.placement.send_off(plan)
        self.ledger.reserve(slot.model, slot.weights, slot.floor)
        self.coming.append(slot)

    def _leave(self, slot: Slot) -> None:
        if slot.phase is not Phase.LEAVING or slot.leases:
            return
        victims = self.placement.plan_park(slot, slot.weights, self.now)
        for victim in victims or ():
            dropped = self.placement.slots[victim]
            dropped.phase, dropped.host = Phase.ABSENT, 0
            self.placement.host.free(victim)
        if victims is not None:
            slot.host = slot.weights
            self.placement.host.hold(slot.model, slot.host, 0)
        slot.phase = slot.away
        slot.departed(Reason.ROOM, None, self.now)
        self.ledger.free(slot.model)

    def _arrive(self, slot: Slot) -> None:
        """Take the room once it is there, then be there."""
        if slot in self.arriving:
            self.arriving.remove(slot)
            slot.phase, slot.loaded = Phase.RESIDENT, self.now
            self.ledger.hold(slot.model, slot.weights, slot.floor)
            slot.host = 0
            self.placement.host.free(slot.model)
        elif slot in self.coming and (self.ledger.given_up(slot.model) or not self.placement.leaving()):
            if not (self.ledger.repaid or self.ledger.out_of_reach):
                return
            self.coming.remove(slot)
            if self.ledger.take(slot.model):
                self.arriving.append(slot)
            else:
                self.ledger.free(slot.model)
                slot.phase, slot.again = slot.away, self.now + 1.0

    def _call_off(self, slot: Slot) -> None:
        if slot not in (*self.coming, *self.arriving):
            return
        (self.coming if slot in self.coming else self.arriving).remove(slot)
        self.ledger.free(slot.model)
        slot.phase, slot.work = slot.away, False

    def check(self) -> None:
        there = [s for s in self.placement.slots.values() if s.phase in (Phase.RESIDENT, Phase.LEAVING)] + self.arriving
        lent = sum(count for _, count in self.loans)
        needs = sum(s.weights for s in there) + max([lent, *(s.floor for s in there)])
        assert needs <= BUDGET
        assert needs <= self.pool.share.held
        assert self.pool.share.held + self.pool.taken <= TOTAL
        assert sum(s.host for s in self.placement.slots.values()) <= self.placement.host.weights <= HOST


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.sampled_from(sorted(SIZES)), st.integers(0, 700)), min_size=60, max_size=90
    )
)
def test_weights_floors_and_loans_stay_within_budget_and_account(steps: list[tuple[str, str, int]]) -> None:
    play = Play()
    for step in steps:
        play.step(*step)
        play.check()


def test_the_play_brings_lends_parks_and_evicts() -> None:
    play = Play()
    for name in "aebdce":
        play.step("want", name, 0)
        play.step("begin", name, 0)
        for other in SIZES:
            play.step("leave", other, 0)
        play.step("arrive", name, 0)
        play.step("arrive", name, 0)
        play.step("lend", name, 50)
        play.step("return", name, 0)
        play.check()
    phases = {name: slot.phase for name, slot in play.placement.slots.items()}
    assert (phases["e"], phases["a"]) == (Phase.RESIDENT, Phase.PARKED)
    assert sum(slot.evictions for slot in play.placement.slots.values()) >= 3
