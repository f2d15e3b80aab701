"""Which models are on the device, who holds them, and bringing them there in the background.

Nothing here blocks the work on the device: a model that is not there is wanted, a loader thread makes room and loads it
while others compute, and those who wait are told. One lock guards it all; it may be shared with the owner, so that what
is decided on its state still holds when it is acted on. Files, loads and unloads happen outside it.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from catalog.schema import Spec
from catalog.terms import Lane
from catalog.weights import locate
from engine.adapters.base import Adapter
from engine.device import Device
from engine.errors import DeviceLost, EngineError, LoadFailed, LoadReason, ModelTooLarge
from engine.eviction import DEFAULT_EVICTION, EvictionPolicy
from engine.failures import COOL_DOWN_S, load_failure
from engine.loader import Models, build_adapter, drop_weights, load_adapter, unload_adapter
from engine.placement import Placement
from engine.slot import Slot, Watcher
from engine.snapshot import LedgerState, ModelState, Phase
from engine.types import Footprint

log = logging.getLogger(__name__)

BULK_PATIENCE_S = 10.0
"""A model that only bulk work waits for is loaded as if it had been asked for this much later."""


class _Stopping(Exception):
    """Raised in a loader thread to end it."""


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
        self._placement = Placement(device, budget, pinned, policy)
        self.ledger = self._placement.ledger
        self._slots = self._placement.slots
        self._models = models
        self._device = device
        self._watcher = watcher
        self._clock = clock
        self._floor_tokens = floor_tokens
        self._find = find
        self._lock = lock or threading.RLock()
        self._changed = threading.Condition(self._lock)
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
            for slot in self._slots.values():
                if slot.phase in (Phase.RESIDENT, Phase.LEAVING) and not slot.leases and slot.adapter is not None:
                    drop_weights(slot.adapter)
                    slot.phase = Phase.ABSENT
                    self.ledger.free(slot.model)
        self._device.clear()

    def want(self, model: str, lane: Lane = Lane.INTERACTIVE) -> None:
        """Work waits for this model: load it if it is not there."""
        with self._lock:
            slot = self._placement.slot(model)
            self._ask(slot, BULK_PATIENCE_S if lane is Lane.BULK else 0.0)
            slot.work = True

    def unwant(self, model: str) -> None:
        """No work waits for this model any more."""
        with self._lock:
            self._placement.slot(model).work = False
            self._changed.notify_all()

    def fail(self, model: str, error: LoadFailed) -> None:
        """Note a failure that another process met with this model. A load that has begun here goes on."""
        with self._lock:
            slot = self._placement.slot(model)
            if slot.phase is Phase.ABSENT:
                slot.phase, slot.error, slot.work = Phase.FAILED, error, False
                slot.retry = self._clock() + COOL_DOWN_S[error.reason]

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

    def there(self, model: str) -> Adapter | None:
        """The adapter of a model that is on the device and stays, without a hold on it; None otherwise."""
        with self._lock:
            slot = self._slots.get(model)
            return slot.adapter if slot is not None and slot.phase is Phase.RESIDENT else None

    def lease(self, model: str, items: int = 1) -> Adapter | None:
        """Hold the model for work on `items` items; None if it is not there, is leaving, or is held and not reentrant.

        Every lease is given back with `release`.
        """
        with self._lock:
            if not self.available(model):
                return None
            slot = self._slots[model]
            slot.leases += 1
            slot.use(items, self._clock(), self._placement.policy)
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
            slot = self._placement.slot(model)
            self._ask(slot, 0.0)
            slot.waiters += 1
            try:
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
                    self._changed.wait(left)
            finally:
                slot.waiters -= 1

    def per_token(self, model: str) -> int:
        """Activation bytes of one padded token, once the model's files were read; 0 until then."""
        slot = self._slots.get(model)
        return slot.footprint.per_token if slot and slot.footprint else 0

    def footprint(self, model: str) -> Footprint:
        """What the model takes, by its files; nothing until they were read."""
        slot = self._slots.get(model)
        return slot.footprint if slot and slot.footprint else Footprint(0)

    def loading_seconds(self, model: str) -> float:
        """For how long, in all, loads of this model have run until now."""
        with self._lock:
            slot = self._slots.get(model)
            return slot.loading_seconds(self._clock()) if slot else 0.0

    def relieve(self) -> bool:
        """Evict the least valuable model that is neither held nor pinned, to save a batch. False if there is none."""
        with self._lock:
            plan = self._placement.plan_relief(self._clock())
            victims = self._placement.send_off(plan) if plan else []
        for victim in victims:
            self._evict(victim)
        return bool(victims)

    def snapshot(self) -> tuple[tuple[ModelState, ...], LedgerState]:
        """Every model that was ever asked for, and the account."""
        with self._lock:
            models = tuple(slot.state(self.ledger.held(slot.model)) for slot in self._slots.values())
            return models, LedgerState(self.ledger.budget, self.ledger.weights, self.ledger.lent)

    def _serve(self) -> None:
        """A loader thread: load what is due, one model after the other."""
        try:
            while True:
                with self._lock:
                    slot = self._await()
                self._watcher.load_started(slot.model)
                failure: EngineError | None = None
                try:
                    self._load(slot)
                except _Stopping:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever a library raises, this model failed to load
                    failure = load_failure(slot.model, error)
                self._settle(slot, failure)
        except _Stopping:
            return
        except Exception:
            log.exception("a loader met an error of the engine's own")
            self._watcher.lost(DeviceLost("The engine met an error of its own and cannot go on; the process restarts."))

    def _await(self) -> Slot:
        """The next model to load, LOADING from here on."""
        while not self._stopping:
            slot, wait_s = self._placement.next_load(self._clock())
            if slot is not None:
                slot.phase = Phase.LOADING
                slot.loading_since = self._clock()
                return slot
            self._changed.wait(wait_s)
        raise _Stopping

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
        try:
            with self._lock:
                slot.load_s = loaded.seconds
                slot.loads += 1
                slot.loaded = self._clock()
                self.ledger.hold(slot.model, loaded.bytes, slot.floor)
                self._placement.check_size(slot, loaded.bytes)
                slot.phase = Phase.RESIDENT
        except ModelTooLarge:
            unload_adapter(slot.adapter, self._device)
            raise

    def _reserve(self, slot: Slot, weights: int) -> bool:
        """Hold `weights` bytes for a model, after evicting whoever must leave. False if that can be done only later."""
        with self._lock:
            self._wait_for(lambda: True)
            self._placement.check_size(slot, weights)
            now = self._clock()
            plan = self._placement.plan_for(slot, now)
            if plan is None and not self._placement.moving(slot):
                raise self._placement.no_room(slot, weights)
            if plan is None or plan.at > now:
                slot.phase = Phase.ABSENT
                return False
            victims = self._placement.send_off(plan)
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
                slot.work = False
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
            plan = self._placement.plan_trim(newcomer, self._clock())
            if plan is None:
                log.warning("models take %d bytes more than the budget, and none may be evicted", over)
                return
            victims = self._placement.send_off(plan)
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

    def _wait_for(self, settled: Callable[[], bool]) -> None:
        while not (self._stopping or settled()):
            self._changed.wait()
        if self._stopping:
            raise _Stopping

    def _ask(self, slot: Slot, patience: float) -> None:
        if not slot.wanted:
            slot.asked, slot.patience = self._clock(), patience
        slot.patience = min(slot.patience, patience)
        if slot.phase is not Phase.RESIDENT:
            self._changed.notify_all()
