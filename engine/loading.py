"""Bringing models to the device and sending them away, in threads of its own while others compute.

One condition guards all that is decided; files, loads, copies and unloads happen outside it.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from pathlib import Path

from catalog.schema import Spec
from engine.adapters.base import Adapter
from engine.device import Device
from engine.errors import DeviceLost, EngineError, LoadFailed, LoadReason, ModelTooLarge
from engine.eviction import Plan
from engine.failures import COOL_DOWN_S, let_go, load_failure
from engine.hosting import Hosting
from engine.loader import Loaded, Models, Reclaimer, build_adapter, drop_weights, load_adapter, unload_adapter
from engine.placement import POLL_S, Placement
from engine.slot import Slot, Watcher
from engine.snapshot import Phase, Reason

log = logging.getLogger(__name__)

_READ_ANEW = (LoadReason.CORRUPT, LoadReason.NOT_FOUND)
"""After these failures the files are looked for again: somebody may have put others in their place."""


class _Stopping(Exception):
    """Raised in a loader thread to end it."""


class Loading:
    """The loader threads of one device. `changed` is the condition over all that `placement` holds."""

    def __init__(
        self,
        placement: Placement,
        models: Models,
        device: Device,
        watcher: Watcher,
        changed: threading.Condition,
        *,
        clock: Callable[[], float],
        floor_tokens: int,
        find: Callable[[Spec], Path | None],
    ) -> None:
        self._placement = placement
        self._models = models
        self._device = device
        self._watcher = watcher
        self._changed = changed
        self._clock = clock
        self._floor_tokens = floor_tokens
        self._find = find
        self._hosting = Hosting(placement, device, changed, clock)
        self._reclaimer = Reclaimer(device, clock)
        self._threads: list[threading.Thread] = []
        self._refreshed = -math.inf
        self.stopping = False

    def start(self, loaders: int) -> None:
        """Begin to load what is wanted, at most `loaders` models at once."""
        for number in range(loaders):
            thread = threading.Thread(target=self._serve, name=f"loader-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout_s: float) -> None:
        """End the loads, wait for the threads and unload every model that nobody holds."""
        slots = self._placement.slots.values()
        with self._changed:
            self.stopping = True
            moving = [s for s in slots if s.phase is Phase.LOADING or (s.phase is Phase.LEAVING and not s.leases)]
            adapters = [slot.adapter for slot in moving if slot.adapter is not None]
            self._changed.notify_all()
        for adapter in adapters:
            adapter.interrupt()
        for thread in self._threads:
            thread.join(timeout_s)
        ended = not any(thread.is_alive() for thread in self._threads)
        with self._changed:
            for slot in slots:
                # One that was to come back from host memory and did not begin to is LOADING still.
                there = slot.phase in (Phase.RESIDENT, Phase.LEAVING, Phase.PARKED) or (ended and slot.host > 0)
                if there and not slot.leases and slot.adapter is not None:
                    drop_weights(slot.adapter)
                    slot.phase, slot.host = Phase.ABSENT, 0
                    self._placement.book(slot).free(slot.model)
                    self._placement.host.free(slot.model)
        self._device.clear()

    def relieve(self, model: str | None = None) -> bool:
        """Free memory to save a batch of `model`, or one on the device: the least valuable idle model goes.

        False if there is none. Where the batch needs host memory, one that is parked there goes first.
        """
        with self._changed:
            slot = self._placement.slots.get(model) if model else None
            book = self._placement.book(slot) if slot else self._placement.ledger
        of_host = book is self._placement.host or not self._hosting.apart
        if of_host and self._hosting.drop_least(Reason.MEMORY):
            return True
        with self._changed:
            plan = self._placement.plan_relief(self._clock(), book)
            victims = self._placement.send_off(plan) if plan else []
        for victim in victims:
            self._evict(victim, Reason.MEMORY)
        return bool(victims)

    def _serve(self) -> None:
        """A loader thread: load what is due and let go what is idle, one model after the other."""
        try:
            while True:
                with self._changed:
                    slot = self._await()
                    leaves = slot.phase is Phase.LEAVING
                    reason = self._placement.why_idle(slot) if leaves else Reason.ROOM
                if leaves and slot.host:
                    self._hosting.drop(slot, reason)
                elif leaves:
                    self._evict(slot, reason)
                else:
                    self._bring(slot)
        except _Stopping:
            return
        except BaseException:
            log.exception("a loader met an error of the engine's own")
            self._watcher.lost(DeviceLost("The engine met an error of its own and cannot go on; the process restarts."))

    def _await(self) -> Slot:
        """The next model to load, LOADING from here on, or to let go, LEAVING."""
        while not self.stopping:
            now = self._clock()
            idle, idle_s = self._placement.next_idle(now)
            if idle is not None:
                idle.phase = Phase.LEAVING
                self._placement.book(idle).leave(idle.model)
                return idle
            slot, wait_s = self._placement.next_load(now)
            if slot is not None:
                slot.phase = Phase.LOADING
                slot.loading_since = now
                return slot
            waits = [wait for wait in (idle_s, wait_s, POLL_S) if wait is not None]
            # Not only when nothing has happened for so long: a busy worker would never give anything back.
            if not self._changed.wait(min(waits)) or self._clock() - self._refreshed >= POLL_S:
                self._placement.ledger.refresh()
                self._refreshed = self._clock()
        raise _Stopping

    def _bring(self, slot: Slot) -> None:
        if slot.known and not self._timely(slot):
            return
        self._watcher.load_started(slot.model)
        failure: EngineError | None = None
        try:
            self._load(slot)
        except _Stopping:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a library raises, this model failed to load
            failure = load_failure(slot.model, error)
            # It is kept for as long as the model cools down.
            let_go(error)
            if slot.host:
                self._hosting.lose(slot)
        self._settle(slot, failure)

    def _load(self, slot: Slot) -> None:
        """Files, room, weights. The slot is LOADING; afterwards it is RESIDENT, or LOADING if room comes only later."""
        adapter = slot.adapter or self._build(slot)
        if not self._reserve(slot):
            return
        if slot.host and self._hosting.restore(slot):
            self._arrived(slot, slot.weights)
            return
        loaded = self._read(slot, adapter)
        try:
            with self._changed:
                slot.load_s = loaded.seconds
                slot.loads += 1
                slot.measured = loaded.bytes
                slot.per_token = adapter.measured_per_token() or slot.per_token
                self._placement.check_size(slot, loaded.bytes)
        except ModelTooLarge:
            unload_adapter(adapter, self._device)
            raise
        self._arrived(slot, loaded.bytes)

    def _read(self, slot: Slot, adapter: Adapter) -> Loaded:
        """Load, and if memory runs out once more without the least valuable model."""
        try:
            return load_adapter(adapter, self._device, self._clock, alone=len(self._threads) == 1)
        except LoadFailed as error:
            if error.reason is not LoadReason.OUT_OF_MEMORY or not self.relieve(slot.model):
                raise
        return load_adapter(adapter, self._device, self._clock, alone=False)

    def _build(self, slot: Slot) -> Adapter:
        """The model's adapter, with what its files say of it. May fetch them."""
        choice = self._models.find(slot.model)
        adapter = build_adapter(choice, self._device, self._find)
        footprint = adapter.footprint()
        slot.floor = footprint.per_token * min(self._floor_tokens, choice.spec.max_length)
        slot.place = adapter.place
        apart = self._placement.book(slot) is not self._placement.host
        slot.parks = apart and adapter.parks and self._placement.host.budget > 0
        if choice.spec.stay.keep_alive_s is not None:
            # 0 as in the setting: until room is needed.
            slot.keep_alive_s = choice.spec.stay.keep_alive_s or None
        slot.adapter, slot.footprint = adapter, footprint
        return adapter

    def _timely(self, slot: Slot) -> bool:
        """Whether a load of known size can begin; if it can only later, nobody needs to hear of it.

        One that must fail begins, so that it is told as what it is.
        """
        with self._changed:
            try:
                if self._plan(slot) is not None:
                    return True
            except EngineError:
                return True
            slot.phase, slot.loading_since = slot.away, None
            self._changed.notify_all()
            return False

    def _plan(self, slot: Slot) -> Plan | None:
        """Who leaves for this model now; None if it is to be tried again later. Raises why it can never come."""
        book = self._placement.book(slot)
        self._placement.check_size(slot, slot.weights)
        now = self._clock()
        book.refresh()
        plan = self._placement.plan_for(slot, now)
        if plan is None and not self._placement.moving(slot):
            failure = self._placement.starve(slot, now)
            if failure is not None:
                raise failure
            if slot.starved == now:
                log.info("%s waits for %d bytes that others on the device have", slot.model, slot.weights + slot.floor)
        return None if plan is None or plan.at > now else plan

    def _reserve(self, slot: Slot) -> bool:
        """Take room for a model, after evicting whoever must leave. False if that can be done only later."""
        book = self._placement.book(slot)
        with self._changed:
            self._wait_for(lambda: True)
            plan = self._plan(slot)
            if plan is None:
                return False
            victims = self._placement.send_off(plan)
            book.reserve(slot.model, slot.weights, slot.floor)
            self._wait_for(lambda: not any(victim.leases for victim in victims))
        for victim in victims:
            self._evict(victim, Reason.ROOM, slot.model)
        if book is self._placement.host:
            self._hosting.settle()
        with self._changed:
            self._wait_for(lambda: book.given_up(slot.model) or not self._placement.leaving())
            self._wait_for(lambda: book.repaid or book.out_of_reach)
            if book.take(slot.model):
                slot.starved = None
                return True
            # Somebody else on the device was quicker.
            book.free(slot.model)
            slot.again = self._clock() + POLL_S
            return False

    def _arrived(self, slot: Slot, size: int) -> None:
        with self._changed:
            slot.loaded = self._clock()
            self._placement.book(slot).hold(slot.model, size, slot.floor)
            slot.phase, slot.early = Phase.RESIDENT, False

    def _settle(self, slot: Slot, failure: EngineError | None) -> None:
        """Note how a load ended, and tell."""
        # Before its phase lets another loader begin with it.
        self._watcher.load_ended(slot.model)
        with self._changed:
            now = self._clock()
            slot.loading_total, slot.loading_since = slot.loading_seconds(now), None
            slot.error = failure
            if failure is not None:
                self._failed(slot, failure, now)
            elif slot.phase is Phase.LOADING:
                slot.phase = slot.away
            resident = slot.phase is Phase.RESIDENT
            self._changed.notify_all()
        if self.stopping:
            return
        if isinstance(failure, DeviceLost):
            self._watcher.lost(failure)
        elif failure is not None:
            log.warning("%s", failure.message)
            self._watcher.refused(slot.model, failure)
        elif resident:
            log.info("%s is there, %d bytes", slot.model, self._placement.book(slot).held(slot.model))
            self._watcher.ready(slot.model)
            self._trim(slot)

    def _failed(self, slot: Slot, failure: EngineError, now: float) -> None:
        self._placement.book(slot).free(slot.model)
        slot.phase = Phase.FAILED
        slot.work = False
        slot.early = slot.early and isinstance(failure, LoadFailed)
        slot.starved = None
        slot.retry = now + (COOL_DOWN_S[failure.reason] if isinstance(failure, LoadFailed) else math.inf)
        if isinstance(failure, LoadFailed) and failure.reason in _READ_ANEW:
            slot.adapter = slot.footprint = slot.measured = None

    def _trim(self, newcomer: Slot) -> None:
        """Evict others if the newcomer took so much more than its estimate that the budget is passed."""
        book = self._placement.book(newcomer)
        with self._changed:
            over = book.excess
            if over <= 0:
                return
            plan = self._placement.plan_trim(newcomer, self._clock())
            if plan is None:
                log.warning("models take %d bytes more than the budget, and none may be evicted", over)
                return
            victims = self._placement.send_off(plan)
            self._wait_for(lambda: not any(victim.leases for victim in victims))
        for victim in victims:
            self._evict(victim, Reason.OVER, newcomer.model)

    def _evict(self, slot: Slot, reason: Reason, by: str | None = None) -> None:
        """Park or unload a model that is leaving and that nobody holds."""
        book = self._placement.book(slot)
        before, size = self._reclaimer.ours(), book.held(slot.model)
        # Host memory that a batch or the machine lacks is not won by parking in it.
        apart = self._hosting.apart and book is not self._placement.host
        parks = apart or reason not in (Reason.MEMORY, Reason.OVER)
        parked = parks and not slot.outdated and self._hosting.park(slot)
        if not parked and slot.adapter is not None:
            drop_weights(slot.adapter)
        try:
            if not parked or apart:
                self._reclaimer.after(before, size, urgent=reason is Reason.MEMORY)
        finally:
            with self._changed:
                slot.phase = slot.away
                slot.departed(reason, by, self._clock())
                book.free(slot.model)
                if slot.outdated:
                    slot.renew()
                self._changed.notify_all()
        self._hosting.settle()
        log.info("%s evicted (%s)", slot.model, "parked in host memory" if parked else reason)
        self._watcher.left(slot.model)

    def _wait_for(self, settled: Callable[[], bool]) -> None:
        while not (self.stopping or settled()):
            # Caches of generated texts go back without a word to this condition.
            self._changed.wait(POLL_S)
        if self.stopping:
            raise _Stopping
