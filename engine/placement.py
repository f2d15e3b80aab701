"""The models of a device, the account of its bytes, and what to load next. Its owner holds the lock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from engine.device import Device
from engine.errors import LoadFailed, LoadReason, ModelTooLarge
from engine.eviction import EvictionPolicy, Plan, plan_room
from engine.ledger import Ledger
from engine.slot import Slot
from engine.snapshot import Phase


class Placement:
    """Slots by model, with the decisions over all of them. Does no work itself and calls nobody back."""

    def __init__(self, device: Device, budget: int, pinned: Iterable[str], policy: EvictionPolicy) -> None:
        self.ledger = Ledger(budget)
        self.policy = policy
        self.slots: dict[str, Slot] = {}
        self._device = device
        self._pinned = frozenset(pinned)

    def slot(self, model: str) -> Slot:
        """The model's slot, made at its first mention."""
        slot = self.slots.get(model)
        if slot is None:
            slot = self.slots[model] = Slot(model, model in self._pinned)
        return slot

    def next_load(self, now: float) -> tuple[Slot | None, float | None]:
        """What to load now, or for how long there is nothing to do (None: until something changes)."""
        times = [slot.retry for slot in self.slots.values() if slot.wanted and slot.phase is Phase.FAILED]
        for slot in sorted((s for s in self.slots.values() if s.loadable(now)), key=lambda s: s.due):
            at = self._possible(slot, now)
            if at is not None and at <= now:
                return slot, None
            if at is not None:
                times.append(at)
        return None, min((at - now for at in times if now < at < math.inf), default=None)

    def plan_for(self, slot: Slot, now: float) -> Plan | None:
        """Who leaves for this model, and when; None if no set of the others makes room."""
        if slot.footprint is None:
            return Plan((), now)
        free = min(self.ledger.room(slot.floor), self._device.probe().free)
        return self._plan(slot.footprint.weights, free, lambda _: True, asked=slot.asked, now=now)

    def plan_relief(self, now: float) -> Plan | None:
        """Who leaves to save a batch: the least valuable that nobody holds."""
        plan = self._plan(1, 0, lambda slot: not slot.leases, asked=0.0, now=now)
        return plan and Plan(plan.victims[:1], now)

    def plan_trim(self, newcomer: Slot, now: float) -> Plan | None:
        """Who leaves because `newcomer` has taken more than it said."""
        return self._plan(self.ledger.excess, 0, lambda slot: slot is not newcomer, asked=0.0, now=now)

    def send_off(self, plan: Plan) -> list[Slot]:
        """The victims, which get no new leases from here on."""
        victims = [self.slots[model] for model in plan.victims]
        for victim in victims:
            victim.phase = Phase.LEAVING
        return victims

    def moving(self, but: Slot) -> bool:
        """Whether another model is coming or leaving."""
        return any(s.phase in (Phase.LOADING, Phase.LEAVING) for s in self.slots.values() if s is not but)

    def check_size(self, slot: Slot, weights: int) -> None:
        """Raise ModelTooLarge if the model could not be held even with everybody gone who may go."""
        pinned = sum(self.ledger.held(s.model) for s in self._there() if s.pinned and s is not slot)
        if self.ledger.fits_ever(weights, slot.floor, pinned):
            return
        raise ModelTooLarge(
            f"{slot.model} takes {weights} bytes and {slot.floor} for a batch; the budget is {self.ledger.budget}, of "
            f"which pinned models hold {pinned}. Raise ROOST_BUDGET or choose a smaller model."
        )

    def no_room(self, slot: Slot, weights: int) -> LoadFailed:
        """The failure of a load for which no eviction makes room, though the budget would allow it."""
        return LoadFailed(
            f"{slot.model} takes {weights} bytes, and no eviction makes room for it: the device has "
            f"{self._device.probe().free} free, the budget {self.ledger.room(slot.floor)}. Free memory on it.",
            LoadReason.OUT_OF_MEMORY,
        )

    def _possible(self, slot: Slot, now: float) -> float | None:
        """When a load can begin; None if that depends on a load or departure that is under way."""
        plan = self.plan_for(slot, now)
        if plan is not None:
            return plan.at
        # If nothing is under way nothing will change by itself: let the load find that out, and say so.
        return None if self.moving(slot) else now

    def _plan(self, need: int, free: int, allowed: Callable[[Slot], bool], *, asked: float, now: float) -> Plan | None:
        residents = [
            slot.resident(self.ledger.held(slot.model), now, self.policy) for slot in self._there() if allowed(slot)
        ]
        return plan_room(need, free, residents, asked=asked, now=now, policy=self.policy)

    def _there(self) -> list[Slot]:
        return [slot for slot in self.slots.values() if slot.phase is Phase.RESIDENT]
