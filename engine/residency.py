"""Which models are on the device, who holds them, and bringing them there in the background.

Nothing here blocks the work on the device: a model that is not there is wanted, a loader thread makes room and loads it
while others compute, and those who wait are told. One lock guards it all; it may be shared with the owner, so that what
is decided on its state still holds when it is acted on. Files, loads and unloads happen outside it.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from catalog.schema import Spec
from catalog.terms import Lane
from catalog.weights import locate
from engine.adapters.base import Adapter
from engine.device import Device
from engine.errors import DeviceLost, EngineError, LoadFailed, LoadReason, ModelTooLarge
from engine.failures import COOL_DOWN_S, load_failure
from engine.ledger import DEFAULT_EVICTION, EvictionPolicy, Ledger, Plan, plan_room
from engine.loader import Models, build_adapter, load_adapter, unload_adapter
from engine.slot import Slot, Watcher
from engine.snapshot import LedgerState, ModelState, Phase

log = logging.getLogger(__name__)

BULK_PATIENCE_S = 10.0
"""A model that only bulk work waits for is loaded as if it had been asked for this much later."""


class Residency:
    """The models of one device. Thread-safe. `start` begins loading what is wanted, `stop` gives everything back."""

    def __init__(
        self,
        models: Models,
        device: Device,
        budget: int,
        watcher: Watcher,
        *,
        clock: Callable[[], float],
        floor_tokens: int,
        pinned: Iterable[str] = (),
        policy: EvictionPolicy = DEFAULT_EVICTION,
        lock: threading.RLock | None = None,
        find: Callable[[Spec], Path | None] = locate,
    ) -> None:
        self.ledger = Ledger(budget)
        self._models = models
        self._device = device
        self._watcher = watcher
        self._clock = clock
        self._floor_tokens = floor_tokens
        self._pinned = frozenset(pinned)
        self._policy = policy
        self._find = find
        self._lock = lock or threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._slots: dict[str, Slot] = {}
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def start(self, loaders: int = 1) -> None:
        """Begin to load what is wanted, at most `loaders` models at once."""
        for number in range(loaders):
            thread = threading.Thread(target=self._serve, name=f"loader-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the loads, wait for the loader threads and unload every model that nobody holds."""
        with self._lock:
            self._stopping = True
            loading = [s.adapter for s in self._slots.values() if s.phase is Phase.LOADING and s.adapter is not None]
            self._changed.notify_all()
        for adapter in loading:
            adapter.interrupt()
        for thread in self._threads:
            thread.join(timeout_s)
        with self._lock:
            leaving = [s for s in self._slots.values() if s.phase is Phase.RESIDENT and not s.leases]
            for slot in leaving:
                slot.phase = Phase.LEAVING
        for slot in leaving:
            self._evict(slot)

    def want(self, model: str, lane: Lane = Lane.INTERACTIVE) -> None:
        """Work waits for this model: load it if it is not there."""
        with self._lock:
            slot = self._slot(model)
            patience = BULK_PATIENCE_S if lane is Lane.BULK else 0.0
            if not slot.wanted:
                slot.wanted = True
                slot.asked = self._clock()
                slot.patience = patience
            slot.patience = min(slot.patience, patience)
            if slot.phase is not Phase.RESIDENT:
                self._changed.notify_all()

    def unwant(self, model: str) -> None:
        """No work waits for this model any more."""
        with self._lock:
            self._slot(model).wanted = False
            self._changed.notify_all()

    def refusal(self, model: str) -> EngineError | None:
        """Why the model cannot be had now, if it failed and has not cooled down yet."""
        with self._lock:
            slot = self._slots.get(model)
            if slot is None or slot.phase is not Phase.FAILED or slot.retry <= self._clock():
                return None
            return slot.error

    def available(self, model: str) -> bool:
        """Whether a lease would be given now."""
        with self._lock:
            slot = self._slots.get(model)
            if slot is None or slot.phase is not Phase.RESIDENT or slot.adapter is None:
                return False
            return slot.adapter.reentrant or not slot.leases

    def lease(self, model: str, items: int = 1) -> Adapter | None:
        """Hold the model for work on `items` items; None if it is not there, is leaving, or is held and not reentrant.

        Every lease is given back with `release`.
        """
        with self._lock:
            if not self.available(model):
                return None
            slot = self._slots[model]
            slot.leases += 1
            slot.use(items, self._clock(), self._policy)
            return slot.adapter

    def release(self, model: str) -> None:
        """Give a lease back."""
        with self._lock:
            slot = self._slots[model]
            slot.leases -= 1
            slot.used = self._clock()
            self._changed.notify_all()

    def acquire(self, model: str, timeout_s: float | None = None) -> Adapter:
        """Hold the model, waiting until it is there. Raises what its load failed with, or TimeoutError."""
        until = None if timeout_s is None else self._clock() + timeout_s
        with self._lock:
            while True:
                adapter = self.lease(model)
                if adapter is not None:
                    return adapter
                refusal = self.refusal(model)
                if refusal is not None:
                    raise refusal
                left = None if until is None else until - self._clock()
                if self._stopping or (left is not None and left <= 0):
                    raise TimeoutError(f"{model} was not there in time")
                self.want(model)
                self._changed.wait(left)

    def per_token(self, model: str) -> int:
        """Activation bytes of one padded token, once the model's files were read; 0 until then."""
        slot = self._slots.get(model)
        return slot.footprint.per_token if slot and slot.footprint else 0

    def loading_seconds(self, model: str) -> float:
        """For how long, in all, loads of this model have run until now."""
        with self._lock:
            slot = self._slots.get(model)
            return slot.loading_seconds(self._clock()) if slot else 0.0

    def relieve(self) -> bool:
        """Evict the least valuable model that is neither held nor pinned, to save a batch. False if there is none."""
        with self._lock:
            plan = self._plan(1, 0, [s for s in self._there() if not s.leases], asked=0.0, now=self._clock())
            if plan is None:
                return False
            slot = self._slots[plan.victims[0]]
            slot.phase = Phase.LEAVING
        self._evict(slot)
        return True

    def snapshot(self) -> tuple[tuple[ModelState, ...], LedgerState]:
        """Every model that was ever asked for, and the account."""
        with self._lock:
            models = tuple(slot.state(self.ledger.held(slot.model)) for slot in self._slots.values())
            return models, LedgerState(self.ledger.budget, self.ledger.weights, self.ledger.lent)

    def _serve(self) -> None:
        """A loader thread: load what is due, one model after the other."""
        while True:
            with self._lock:
                slot = None
                while slot is None:
                    if self._stopping:
                        return
                    slot, wait_s = self._next()
                    if slot is None:
                        self._changed.wait(wait_s)
                slot.phase = Phase.LOADING
                slot.loading_since = self._clock()
            self._watcher.load_started(slot.model)
            failure: EngineError | None = None
            try:
                self._load(slot)
            except Exception as error:  # noqa: BLE001 - whatever a library raises, this model failed to load
                failure = load_failure(slot.model, error)
            self._settle(slot, failure)

    def _next(self) -> tuple[Slot | None, float | None]:
        """What to load now, or for how long there is nothing to do (None: until something changes)."""
        now = self._clock()
        times = [slot.retry for slot in self._slots.values() if slot.wanted and slot.phase is Phase.FAILED]
        for slot in sorted((s for s in self._slots.values() if s.loadable(now)), key=lambda s: s.due):
            at = self._possible(slot, now)
            if at is not None and at <= now:
                return slot, None
            if at is not None:
                times.append(at)
        later = [at - now for at in times if now < at < math.inf]
        return None, min(later, default=None)

    def _possible(self, slot: Slot, now: float) -> float | None:
        """When a load can begin; None if that depends on a load or departure that is under way."""
        plan = self._plan_for(slot, now)
        if plan is not None:
            return plan.at
        # If nothing is under way nothing will change by itself: let the load find that out, and say so.
        return None if self._moving(slot) else now

    def _load(self, slot: Slot) -> None:
        """Files, room, weights. The slot is LOADING; afterwards it is RESIDENT, or ABSENT if room comes only later."""
        choice = self._models.find(slot.model)
        if slot.adapter is None:
            adapter = build_adapter(choice, self._device, self._find)
            footprint = adapter.footprint()
            slot.floor = footprint.per_token * min(self._floor_tokens, choice.spec.max_length)
            slot.adapter, slot.footprint = adapter, footprint
        if not self._reserve(slot, slot.footprint.weights if slot.footprint else 0):
            return
        try:
            loaded = load_adapter(slot.adapter, self._device, self._clock)
        except LoadFailed as error:
            if error.reason is not LoadReason.OUT_OF_MEMORY or not self.relieve():
                raise
            loaded = load_adapter(slot.adapter, self._device, self._clock)
        with self._lock:
            slot.load_s = loaded.seconds
            slot.loads += 1
            slot.loaded = self._clock()
            self.ledger.hold(slot.model, loaded.bytes, slot.floor)
            fits = self.ledger.fits_ever(loaded.bytes, slot.floor, self._pinned_bytes(slot))
            if fits:
                slot.phase = Phase.RESIDENT
        if not fits:
            unload_adapter(slot.adapter, self._device)
            raise self._too_large(slot, loaded.bytes)

    def _reserve(self, slot: Slot, weights: int) -> bool:
        """Hold `weights` bytes for a model, after evicting whoever must leave. False if that can be done only later."""
        with self._lock:
            if not self.ledger.fits_ever(weights, slot.floor, self._pinned_bytes(slot)):
                raise self._too_large(slot, weights)
            now = self._clock()
            plan = self._plan_for(slot, now)
            if plan is None and not self._moving(slot):
                free = self._device.probe().free
                raise LoadFailed(
                    f"{slot.model} takes {weights} bytes, and no eviction makes room for it: the device has {free} "
                    f"free, the budget {self.ledger.room(slot.floor)}. Free memory on it, or unpin a model.",
                    LoadReason.OUT_OF_MEMORY,
                )
            if plan is None or plan.at > now:
                slot.phase = Phase.ABSENT
                return False
            victims = self._send_off(plan)
            self.ledger.hold(slot.model, weights, slot.floor)
            self._wait_for(lambda: not any(victim.leases for victim in victims))
        for victim in victims:
            self._evict(victim)
        with self._lock:
            self._wait_for(lambda: self.ledger.lendable >= 0 or not self.ledger.lent)
        return True

    def _settle(self, slot: Slot, failure: EngineError | None) -> None:
        """Note how a load ended, and tell."""
        with self._lock:
            now = self._clock()
            slot.loading_total, slot.loading_since = slot.loading_seconds(now), None
            slot.error = failure
            if failure is not None:
                self.ledger.free(slot.model)
                slot.phase = Phase.FAILED
                slot.wanted = False
                slot.retry = now + (COOL_DOWN_S[failure.reason] if isinstance(failure, LoadFailed) else math.inf)
            resident = slot.phase is Phase.RESIDENT
            self._changed.notify_all()
        self._watcher.load_ended(slot.model)
        if self._stopping:
            return
        if isinstance(failure, DeviceLost):
            self._watcher.lost(failure)
        elif failure is not None:
            log.warning("%s", failure.message)
            self._watcher.refused(slot.model, failure)
        elif resident:
            log.info("%s loaded in %.2f s, %d bytes", slot.model, slot.load_s, self.ledger.held(slot.model))
            self._watcher.ready(slot.model)
            self._trim(slot)

    def _trim(self, newcomer: Slot) -> None:
        """Evict others if the newcomer took so much more than its estimate that the budget is passed."""
        with self._lock:
            over = self.ledger.excess
            if over <= 0:
                return
            plan = self._plan(over, 0, [s for s in self._there() if s is not newcomer], asked=0.0, now=self._clock())
            if plan is None:
                log.warning("models take %d bytes more than the budget, and none may be evicted", over)
                return
            victims = self._send_off(plan)
            self._wait_for(lambda: not any(victim.leases for victim in victims))
        for victim in victims:
            self._evict(victim)

    def _evict(self, slot: Slot) -> None:
        """Unload a model that is leaving and that nobody holds."""
        if slot.adapter is not None:
            unload_adapter(slot.adapter, self._device)
        with self._lock:
            slot.phase = Phase.ABSENT
            slot.evictions += 1
            slot.asked = self._clock()
            self.ledger.free(slot.model)
            self._changed.notify_all()
        log.info("%s evicted", slot.model)

    def _send_off(self, plan: Plan) -> list[Slot]:
        """From here on the victims get no new leases."""
        victims = [self._slots[model] for model in plan.victims]
        for victim in victims:
            victim.phase = Phase.LEAVING
        return victims

    def _wait_for(self, settled: Callable[[], bool]) -> None:
        while not settled():
            if self._stopping:
                raise LoadFailed("The engine is stopping.", LoadReason.UNKNOWN)
            self._changed.wait()

    def _plan_for(self, slot: Slot, now: float) -> Plan | None:
        if slot.footprint is None:
            return Plan((), now)
        free = min(self.ledger.room(slot.floor), self._device.probe().free)
        return self._plan(slot.footprint.weights, free, self._there(), asked=slot.asked, now=now)

    def _plan(self, need: int, free: int, slots: Sequence[Slot], *, asked: float, now: float) -> Plan | None:
        residents = [slot.resident(self.ledger.held(slot.model), now, self._policy) for slot in slots]
        return plan_room(need, free, residents, asked=asked, now=now, policy=self._policy)

    def _there(self) -> list[Slot]:
        return [slot for slot in self._slots.values() if slot.phase is Phase.RESIDENT]

    def _moving(self, but: Slot) -> bool:
        return any(s.phase in (Phase.LOADING, Phase.LEAVING) for s in self._slots.values() if s is not but)

    def _pinned_bytes(self, but: Slot) -> int:
        return sum(self.ledger.held(slot.model) for slot in self._there() if slot.pinned and slot is not but)

    def _too_large(self, slot: Slot, weights: int) -> ModelTooLarge:
        return ModelTooLarge(
            f"{slot.model} takes {weights} bytes and {slot.floor} for a batch; the budget is {self.ledger.budget}, of "
            f"which pinned models hold {self._pinned_bytes(slot)}. Raise ROOST_BUDGET or choose a smaller model."
        )

    def _slot(self, model: str) -> Slot:
        slot = self._slots.get(model)
        if slot is None:
            slot = self._slots[model] = Slot(model, model in self._pinned)
        return slot
