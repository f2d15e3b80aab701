"""One device on a virtual clock. The decisions are the engine's own; only their threads are played by events.

What `engine.lanes` and `engine.loading` do between two decisions is repeated here step by step: lanes that take the
next batch when they are free, one loader that plans room, waits for its victims' leases, parks or drops them, loads or
restores, and tells. Loads take what the model says, parking as long as coming back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from catalog.terms import Lane
from engine.batcher import Bounds
from engine.device import FakeDevice
from engine.eviction import DEFAULT_EVICTION, EvictionPolicy
from engine.placement import Placement
from engine.residency import BULK_PATIENCE_S
from engine.scheduler import Scheduler
from engine.slot import Slot
from engine.snapshot import Phase, Reason
from engine.types import Batch, Footprint, Work
from tests.bench.simulation.record import Load, Record
from tests.bench.simulation.traffic import SimModel

OVERHEAD_MS = 1.0


@dataclass(frozen=True, slots=True)
class Card:
    """The device: bytes for models, bytes of host memory for those that left, bounds of a batch."""

    budget: int
    host: int = 0
    lanes: int = 1
    batch_items: int = 256
    batch_tokens: int = 1024


@dataclass(slots=True)
class _Coming:
    """The load under way: its slot, and who must have left before the weights are read."""

    slot: Slot
    victims: list[Slot] = field(default_factory=list)
    reading: bool = False
    returned: bool = False
    seconds: float = 0.0


class World:
    """The device, its models and its clock. `run` plays the works to their end.

    `tokens` bounds the batches of some models by other than the card's. With `resident` all models are there.
    """

    def __init__(
        self,
        models: Iterable[SimModel],
        card: Card,
        policy: EvictionPolicy = DEFAULT_EVICTION,
        scheduler: Scheduler | None = None,
        *,
        resident: bool = False,
        tokens: Mapping[str, int] | None = None,
    ) -> None:
        self.now = 0.0
        self.record = Record(0.0, 0.0)
        self._models: Mapping[str, SimModel] = {m.name: m for m in models}
        self._card = card
        self._scheduler = scheduler or Scheduler()
        self._placement = Placement(
            FakeDevice(), card.budget, (), policy, host_bytes=card.host, waiting=self._scheduler.waiting
        )
        self._bounds = {
            m.name: Bounds(card.batch_items, (tokens or {}).get(m.name, card.batch_tokens), m.cost, OVERHEAD_MS)
            for m in self._models.values()
        }
        self._events: list[tuple[float, int, Batch | _Coming | None]] = []
        self._seq = count()
        self._coming: _Coming | None = None
        self._free = card.lanes
        self._bulk = 0
        self._left: dict[str, int] = {}
        self._look = True
        self._wakes = math.inf
        for model in self._models.values():
            slot = self._placement.slot(model.name)
            slot.footprint, slot.parks = Footprint(model.bytes), card.host > 0
            if resident:
                self._placement.ledger.hold(model.name, model.bytes, 0)
                slot.phase = Phase.RESIDENT

    def run(self, works: Iterable[Work], record: Record, drain_s: float = math.inf) -> Record:
        """Play works that come, in order, until the record's end; then until all are done, or `drain_s` longer."""
        coming = iter(works)
        following = next(coming, None)
        self.record = record
        idle_since: float | None = None
        while following is not None or self._events:
            at = self._events[0][0] if self._events else math.inf
            if following is not None and following.arrived <= at:
                at = following.arrived
            if at > record.until + drain_s:
                break
            if idle_since is not None:
                record.starved_s += record.within(idle_since, at)
            self.now = at
            while following is not None and following.arrived <= at:
                self._arrive(following)
                following = next(coming, None)
            while self._events and self._events[0][0] <= at:
                event = heappop(self._events)[2]
                if isinstance(event, Batch):
                    self._ended(event)
                elif event is not None:
                    self._loaded(event)
                else:
                    self._look, self._wakes = True, math.inf
            self._turn()
            idle_since = self.now if self._free == self._card.lanes and self._scheduler.items else None
        self.record.left = len(self._left)
        return self.record

    def _arrive(self, work: Work) -> None:
        self._left[work.id] = len(work.items)
        self._scheduler.add(work)
        self._want(work.model, work.lane)

    def _turn(self) -> None:
        """Let loader and lanes do what they can do now."""
        if self._coming is not None and not self._coming.reading:
            self._make_room(self._coming)
        if self._coming is None and self._look:
            self._choose()
        while self._free:
            batch = self._scheduler.pick(
                self._ready,
                idle=self._free == self._card.lanes,
                now=self.now,
                bulk=self._bulk < max(1, self._card.lanes - 1),
            )
            if batch is None:
                break
            self._begin(batch)
        if self._coming is None and self._look:
            self._choose()

    def _ready(self, model: str) -> Bounds | None:
        slot = self._placement.slots[model]
        return self._bounds[model] if slot.phase is Phase.RESIDENT else None

    def _begin(self, batch: Batch) -> None:
        slot = self._placement.slots[batch.model]
        slot.leases += 1
        slot.use(len(batch.entries), self.now, self._placement.policy)
        if not self._scheduler.waiting(batch.model):
            slot.work = False
            self._look = True
        self._free -= 1
        self._bulk += batch.lane is Lane.BULK
        ms = self._models[batch.model].cost.batch(len(batch.entries), batch.padded_length) + OVERHEAD_MS
        end = self.now + ms / 1000
        self.record.busy_s += self.record.within(self.now, end)
        self._at(end, batch)

    def _ended(self, batch: Batch) -> None:
        self._free += 1
        self._bulk -= batch.lane is Lane.BULK
        slot = self._placement.slots[batch.model]
        slot.leases -= 1
        slot.used = self.now
        self._look = True
        for entry in batch.entries:
            self._left[entry.work.id] -= 1
            if not self._left[entry.work.id]:
                del self._left[entry.work.id]
                self.record.done.append((entry.work, self.now))
        if self.record.counts(self.now):
            self.record.done_ms += batch.cost_ms

    def _want(self, model: str, lane: Lane) -> None:
        """As Residency.want."""
        slot = self._placement.slots[model]
        patience = BULK_PATIENCE_S if lane is Lane.BULK else 0.0
        if not slot.wanted:
            slot.asked, slot.patience = self.now, patience
        slot.patience = min(slot.patience, patience)
        slot.work = True
        if slot.phase is not Phase.RESIDENT:
            self._look = True

    def _choose(self) -> None:
        """As a loader thread that waits: take up what may come now, or sleep until something may."""
        self._look = False
        slot, wait_s = self._placement.next_load(self.now)
        if slot is None:
            if wait_s is not None and self.now + wait_s < self._wakes - 1e-9:
                self._wakes = self.now + max(wait_s, 1e-6)
                self._at(self._wakes, None)
            return
        plan = self._placement.plan_for(slot, self.now)
        if plan is None:
            self.record.failed += len(self._scheduler.drop_model(slot.model))
            slot.work = False
            return
        parked = slot.phase is Phase.PARKED
        slot.phase = Phase.LOADING
        self._coming = _Coming(slot, self._placement.send_off(plan), returned=parked)
        self._placement.ledger.reserve(slot.model, slot.weights, 0)
        self._make_room(self._coming)

    def _make_room(self, coming: _Coming) -> None:
        """As Loading._reserve: nobody leaves while it is leased, and nothing is read before all have left."""
        if any(victim.leases for victim in coming.victims):
            return
        parking_s = sum(self._evict(victim, coming.slot.model) for victim in coming.victims)
        self._placement.ledger.take(coming.slot.model)
        model = self._models[coming.slot.model]
        coming.reading = True
        coming.seconds = model.restore_s if coming.returned else model.load_s
        self._at(self.now + parking_s + coming.seconds, coming)

    def _evict(self, slot: Slot, by: str) -> float:
        """As Loading._evict and Hosting.park; the seconds that it takes."""
        gone = self._placement.plan_park(slot, slot.weights, self.now)
        for other in gone or ():
            dropped = self._placement.slots[other]
            dropped.phase, dropped.host = Phase.ABSENT, 0
            self._placement.host.free(other)
        if gone is not None:
            slot.host = slot.weights
            self._placement.host.hold(slot.model, slot.host, 0)
        slot.phase = slot.away
        slot.departed(Reason.ROOM, by, self.now)
        self._placement.ledger.free(slot.model)
        return 0.0 if gone is None else self._models[slot.model].restore_s

    def _loaded(self, coming: _Coming) -> None:
        """As Loading._arrived and _settle."""
        slot = coming.slot
        if coming.returned:
            slot.restores += 1
            slot.restore_s, slot.host = coming.seconds, 0
            self._placement.host.free(slot.model)
        else:
            slot.loads += 1
            slot.load_s = coming.seconds
        slot.loaded = self.now
        slot.phase = Phase.RESIDENT
        self._placement.ledger.hold(slot.model, slot.weights, 0)
        self.record.loads.append(Load(slot.model, self.now, coming.seconds, coming.returned))
        self._coming = None
        self._look = True

    def _at(self, at: float, event: Batch | _Coming | None) -> None:
        heappush(self._events, (at, next(self._seq), event))
