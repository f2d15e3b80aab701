"""The models of a device, the books of its bytes, and what to load or let go next. Its owner holds the lock."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping

from engine.account import Account
from engine.adapters.base import Place
from engine.device import Device, DeviceKind
from engine.errors import LoadFailed, LoadReason, ModelTooLarge
from engine.eviction import EvictionPolicy, Newcomer, Plan, Resident, plan_room
from engine.ledger import Ledger
from engine.slot import Slot
from engine.snapshot import LedgerState, Phase, Reason

POLL_S = 1.0
"""How often a load is tried again that waits for memory which somebody else on the device has."""

FOREIGN_WAIT_S = 10.0
"""For how long a load waits for memory that is nobody's of ours, before it fails."""


class Placement:
    """Slots by model, with the decisions over all of them. Does no work itself and calls nobody back.

    It reads no clock and takes no lock, so that a simulator can drive it on a clock of its own: `slot`, `next_load`,
    `plan_for`, `send_off` and the ledger's `hold` and `free` are what it takes.
    """

    def __init__(
        self,
        device: Device,
        budget: int,
        pinned: Iterable[str],
        policy: EvictionPolicy,
        *,
        account: Account | None = None,
        host_bytes: int = 0,
        keep_alive_s: float | None = None,
        foreign_wait_s: float = FOREIGN_WAIT_S,
        waiting: Callable[[str], int] = lambda _: 1,
    ) -> None:
        self.ledger = Ledger(budget, account, phantom=device.kind is DeviceKind.FAKE)
        self.host = Ledger(host_bytes)
        self.policy = policy
        self.slots: dict[str, Slot] = {}
        self._device = device
        self._pinned = frozenset(pinned)
        self._keep_alive_s = keep_alive_s
        self._foreign_wait_s = foreign_wait_s
        self._waiting = waiting

    def slot(self, model: str) -> Slot:
        """The model's slot, made at its first mention."""
        slot = self.slots.get(model)
        if slot is None:
            slot = self.slots[model] = Slot(model, model in self._pinned, keep_alive_s=self._keep_alive_s)
        return slot

    def book(self, slot: Slot) -> Ledger:
        """The books that the model's weights are in. On a CPU the host's memory is the device's."""
        beside = slot.place is Place.HOST and self._device.kind is not DeviceKind.CPU
        return self.host if beside else self.ledger

    def next_load(self, now: float) -> tuple[Slot | None, float | None]:
        """What to load now, or for how long there is nothing to do (None: until something changes)."""
        times = [slot.retry for slot in self.slots.values() if slot.wanted and slot.phase is Phase.FAILED]
        busy = self._contenders(now)
        coming = [(self._newcomer(slot, busy), slot) for slot in self.slots.values() if slot.loadable(now)]
        if coming:
            self.ledger.refresh()
        starved = [s for s in self.slots.values() if s.starved is not None and s.wanted and self.book(s) is self.ledger]
        self.ledger.want(max((s.weights + s.floor for s in starved), default=0))
        there, kept = self._residents(now), list[Ledger]()
        for newcomer, slot in sorted(coming, key=lambda pair: pair[0].rank(now, self.policy)):
            if self.book(slot) in kept:
                continue
            at = self._possible(slot, now, there, newcomer)
            if at is not None and at <= now:
                return slot, None
            if at is not None:
                times.append(at)
            if slot.starved is None and newcomer.overdue(now, self.policy):
                # Those behind it would bring new victims that have to stay, again and again.
                kept.append(self.book(slot))
        return None, min((at - now for at in times if now < at < math.inf), default=None)

    def next_idle(self, now: float) -> tuple[Slot | None, float | None]:
        """A model whose keep-alive has ended, or for how long there is none (None: until something changes).

        While another worker on the device waits for room, or somebody else has taken what was given to this one, what
        is idle here stays no longer than its minimum. On a CPU what is parked goes first then.
        """
        times = []
        short = self.ledger.short > 0
        if short and self._device.kind is DeviceKind.CPU and (parked := self.least_parked(now)) is not None:
            return parked, None
        pressed = short or self.pressed
        for slot in self.slots.values():
            if slot.outdated and not slot.leases and slot.phase in (Phase.RESIDENT, Phase.PARKED):
                return slot, None
        for slot in sorted(self._there(), key=lambda slot: slot.since):
            pressing = pressed and self.book(slot) is self.ledger
            if slot.pinned or slot.wanted or slot.leases or (slot.keep_alive_s is None and not pressing):
                continue
            at = math.inf if slot.keep_alive_s is None else slot.since + slot.keep_alive_s
            if pressing:
                at = min(at, slot.loaded + self.policy.min_stay_s)
            if at <= now:
                return slot, None
            times.append(at)
        return None, min((at - now for at in times), default=None)

    def held_back(self, now: float) -> dict[str, float]:
        """The models that are wanted, could have room and may not come yet, each with when they may."""
        busy, there = self._contenders(now), self._residents(now)
        found = {}
        for slot in self.slots.values():
            plan = self.plan_for(slot, now, there, self._newcomer(slot, busy)) if slot.loadable(now) else None
            if plan is not None and plan.at > now:
                found[slot.model] = plan.at
        return found

    def why_idle(self, slot: Slot) -> Reason:
        """Why a model that is idle leaves now."""
        if slot.outdated:
            return Reason.CHANGED
        if self.book(slot) is self.ledger and self.ledger.short:
            return Reason.OVER
        return Reason.ROOM if self.pressed else Reason.IDLE

    def plan_for(
        self,
        slot: Slot,
        now: float,
        there: Mapping[Slot, Resident] | None = None,
        newcomer: Newcomer | None = None,
    ) -> Plan | None:
        """Who leaves for this model, and when; None if no set of the others makes room. `there` is who could."""
        if not slot.known:
            return Plan((), now)
        book = self.book(slot)
        # Parked models give way to one that works in host memory.
        parked = self.parked if book is self.host else 0
        others = self._residents(now) if there is None else there
        residents = [resident for other, resident in others.items() if self.book(other) is book]
        coming = newcomer or self._newcomer(slot, self._contenders(now))
        # What a resident keeps free for its batches comes free with it, but only once none that keeps more is left.
        greedy = [r for r in residents if not r.pinned and r.bytes > 0 and self.slots[r.model].floor > slot.floor]
        greedy.sort(key=lambda r: -self.slots[r.model].floor)
        for count in range(len(greedy) + 1):
            going = {resident.model for resident in greedy[:count]}
            free = book.room(slot.floor, going) + parked
            plan = plan_room(slot.weights, free, residents, newcomer=coming, now=now, policy=self.policy, going=going)
            if plan is not None:
                return plan
        return None

    def plan_relief(self, now: float, book: Ledger | None = None) -> Plan | None:
        """Who leaves to save a batch: the least valuable that nobody holds, of the device or of other books."""
        own = book or self.ledger
        plan = self._plan(1, 0, lambda slot: not slot.leases and self.book(slot) is own, now=now)
        return plan and Plan(plan.victims[:1], now)

    def plan_trim(self, newcomer: Slot, now: float) -> Plan | None:
        """Who leaves because `newcomer` has taken more than it said."""
        book = self.book(newcomer)
        return self._plan(book.excess, 0, lambda slot: slot is not newcomer and self.book(slot) is book, now=now)

    def plan_park(self, slot: Slot, size: int, now: float) -> tuple[str, ...] | None:
        """Which parked models give way so that this one can park in `size` bytes; None if it is not to park itself.

        It is not if it does not fit, or if it is worth less there than those that would have to go.
        """
        free = self.host.budget - self.host.weights
        if not slot.parks or size > free + self.parked:
            return None
        parked = [other.parked(other.host, now, self.policy) for other in self._parked() if other is not slot]
        newcomer = slot.parked(size, now, self.policy)
        plan = plan_room(size, free, parked, now=now, policy=self.policy)
        if plan is None:
            return None
        lost = [one for one in parked if one.model in plan.victims]
        if any(one.value > newcomer.value and (one.wanted or not newcomer.wanted) for one in lost):
            return None
        return plan.victims

    def least_parked(self, now: float) -> Slot | None:
        """The parked model that is worth least."""
        parked = [slot.parked(slot.host, now, self.policy) for slot in self._parked()]
        plan = plan_room(1, 0, parked, now=now, policy=self.policy)
        return self.slots[plan.victims[0]] if plan and plan.victims else None

    @property
    def parked(self) -> int:
        """Bytes in host memory of evicted models that may be dropped."""
        return sum(slot.host for slot in self._parked())

    @property
    def pressed(self) -> bool:
        """Whether another worker on the device waits for what could be given up here."""
        ours = [s for s in self.slots.values() if not s.pinned and self.book(s) is self.ledger]
        return self.ledger.pressed(sum(self.ledger.held(slot.model) for slot in ours))

    def send_off(self, plan: Plan) -> list[Slot]:
        """The victims, which get no new leases from here on."""
        victims = [self.slots[model] for model in plan.victims]
        for victim in victims:
            victim.phase = Phase.LEAVING
            self.book(victim).leave(victim.model)
        return victims

    def moving(self, but: Slot | None = None) -> bool:
        """Whether a model other than `but` is coming or leaving."""
        return any(s.phase in (Phase.LOADING, Phase.LEAVING) for s in self.slots.values() if s is not but)

    def leaving(self) -> bool:
        """Whether a model is leaving."""
        return any(slot.phase is Phase.LEAVING for slot in self.slots.values())

    def check_size(self, slot: Slot, weights: int) -> None:
        """Raise ModelTooLarge if the model could not be held even with everybody gone who may go."""
        book = self.book(slot)
        pinned = sum(book.held(s.model) for s in self._there() if s.pinned and s is not slot and self.book(s) is book)
        if book.fits_ever(weights, slot.floor, pinned):
            return
        setting = "ROOST_BUDGET" if book is self.ledger else "ROOST_HOST_BUDGET"
        raise ModelTooLarge(too_large(slot.model, weights, slot.floor, book.budget, pinned, setting))

    def starve(self, slot: Slot, now: float) -> LoadFailed | None:
        """Note that no eviction makes room for a load, so that it is tried again; or why that would not help.

        What other workers hold may come free at any time. What is nobody's of ours is waited for a while only.
        """
        if slot.starved is None:
            slot.starved = now
        book = self.book(slot)
        until = slot.starved + self._foreign_wait_s
        if slot.weights + slot.floor <= book.reach():
            slot.again = now + POLL_S
        elif now < until:
            slot.again = min(now + POLL_S, until)
        else:
            return self.no_room(slot, slot.weights)
        return None

    def no_room(self, slot: Slot, weights: int) -> LoadFailed:
        """The failure of a load for which no eviction makes room, though the budget would allow it."""
        if self.book(slot) is self.host:
            return LoadFailed(
                f"{slot.model} takes {weights} bytes of host memory, and no eviction makes room for it: of "
                f"{self.host.budget}, {self.host.weights} are taken. Raise ROOST_HOST_BUDGET.",
                LoadReason.OUT_OF_MEMORY,
            )
        found = self.account()
        return LoadFailed(
            f"{slot.model} takes {weights} bytes and {slot.floor} for a batch, and no eviction makes room for it: the "
            f"device has {found.free} free of {found.total} bytes; this worker's models take {found.weights}, other "
            f"workers hold {found.others}; {self.ledger.tell_foreign()}. Free memory on it.",
            LoadReason.OUT_OF_MEMORY,
        )

    def account(self) -> LedgerState:
        """The books, with what the device says."""
        memory = self._device.probe()
        return LedgerState(
            budget=self.ledger.budget,
            weights=self.ledger.weights,
            lent=self.ledger.lent,
            total=memory.total,
            free=memory.free,
            others=self.ledger.others().held,
            foreign=self.ledger.foreign(memory),
            host=self.host.weights,
            host_budget=self.host.budget,
        )

    def _possible(self, slot: Slot, now: float, there: Mapping[Slot, Resident], newcomer: Newcomer) -> float | None:
        """When a load can begin; None if that depends on a load or departure that is under way."""
        plan = self.plan_for(slot, now, there, newcomer)
        if plan is not None:
            # The account has refused what the plan says: it is asked again, but not at once.
            return max(plan.at, slot.again)
        # If nothing is under way nothing will change by itself: let the load find that out, and say so.
        return None if self.moving(slot) else max(now, slot.again)

    def _plan(self, need: int, free: int, allowed: Callable[[Slot], bool], *, now: float) -> Plan | None:
        residents = [resident for slot, resident in self._residents(now).items() if allowed(slot)]
        return plan_room(need, free, residents, now=now, policy=self.policy)

    def _residents(self, now: float) -> dict[Slot, Resident]:
        return {slot: slot.resident(self.book(slot).held(slot.model), now, self.policy) for slot in self._there()}

    def _newcomer(self, slot: Slot, contenders: Collection[Slot]) -> Newcomer:
        return slot.newcomer(self._waiting(slot.model), alone=not any(other is not slot for other in contenders))

    def _contenders(self, now: float) -> list[Slot]:
        """Those that the loader is wanted for. One that waits for memory which others hold does not need it yet."""
        found = self.slots.values()
        return [s for s in found if s.phase is Phase.LOADING or (s.starved is None and s.loadable(now))]

    def _there(self) -> list[Slot]:
        return [slot for slot in self.slots.values() if slot.phase is Phase.RESIDENT]

    def _parked(self) -> list[Slot]:
        return [slot for slot in self.slots.values() if slot.phase is Phase.PARKED]


def too_large(model: str, weights: int, floor: int, budget: int, pinned: int, setting: str = "ROOST_BUDGET") -> str:
    """Why a model can never be had, and what to do."""
    return (
        f"{model} takes {weights} bytes and {floor} for a batch; the budget is {budget}, of which pinned models hold "
        f"{pinned}. Raise {setting} or choose a smaller model."
    )
