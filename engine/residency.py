"""Which models are on the device, who holds them, and having them brought there in the background.

Nothing here blocks the work on the device: a model that is not there is wanted, a loader thread (`engine/loading.py`)
makes room and loads it while others compute, and those who wait are told. One lock guards it all; it may be shared with
the owner, so that what is decided on its state still holds when it is acted on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from catalog.schema import Spec
from catalog.terms import Lane
from catalog.weights import locate, locate_here
from engine.account import Account, SoleAccount
from engine.adapters.base import Adapter
from engine.device import Device
from engine.errors import EngineError, LoadFailed, LoadReason, ModelTooLarge
from engine.eviction import DEFAULT_EVICTION, EvictionPolicy
from engine.failures import COOL_DOWN_S
from engine.ledger import Ledger
from engine.loader import Models
from engine.loading import Loading
from engine.placement import FOREIGN_WAIT_S, Placement
from engine.slot import Slot, Watcher
from engine.snapshot import LedgerState, ModelState, Phase
from engine.survey import Survey

BULK_PATIENCE_S = 10.0
"""A model that only bulk work waits for is loaded as if it had been asked for this much later."""


class Residency:
    """The models of one device. Thread-safe. `start` begins loading what is wanted, `stop` gives everything back.

    A model that has to leave goes to host memory where `host_bytes` and its family allow it, and comes back from there
    without reading a file. One that nobody used for `keep_alive_s`, or for what its spec says, leaves by itself.
    """

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
        find_here: Callable[[Spec], Path | None] = locate_here,
        account: Account | None = None,
        host_bytes: int = 0,
        keep_alive_s: float | None = None,
        foreign_wait_s: float = FOREIGN_WAIT_S,
        waiting: Callable[[str], int] = lambda _: 1,
    ) -> None:
        specs = [models.find(key).spec for key in models.keys]
        stays = [spec for spec in specs if spec.stay.pinned or spec.stay.preload]
        # In an order that lasts: of pins that are too much together, the same ones have room each time.
        pins = tuple(dict.fromkeys((*pinned, *(spec.id for spec in stays if spec.stay.pinned))))
        self._placement = Placement(
            device,
            budget,
            pins,
            policy,
            account=SoleAccount(device) if account is None else account,
            host_bytes=host_bytes,
            keep_alive_s=keep_alive_s,
            foreign_wait_s=foreign_wait_s,
            waiting=waiting,
        )
        self.ledger = self._placement.ledger
        self._slots = self._placement.slots
        self._clock = clock
        self._lock = lock or threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._loading = Loading(
            self._placement, models, device, watcher, self._changed, clock=clock, floor_tokens=floor_tokens, find=find
        )
        for model in (*pins, *(spec.id for spec in stays)):
            self.preload(model)
        self._survey = Survey(models, device, self.ledger, pins, floor_tokens, find_here, self._idle)

    @property
    def too_large(self) -> Mapping[str, str]:
        """Models of the catalog that can never be had, each with the reason; found out soon after the start."""
        with self._lock:
            return {model: why for model, why in self._survey.too_large.items() if not self._proven(model)}

    @property
    def surveyed(self) -> threading.Event:
        """Set once the catalog was looked through for them."""
        return self._survey.done

    def start(self, loaders: int = 1) -> None:
        """Begin to load what is wanted, at most `loaders` models at once; those that are pinned or preloaded first."""
        self._loading.start(loaders)
        self._survey.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the loads, wait for the loader threads and unload every model that nobody holds."""
        self._survey.stop()
        self._loading.stop(timeout_s)
        with self._lock:
            self.ledger.close()

    def want(self, model: str, lane: Lane = Lane.INTERACTIVE) -> None:
        """Work waits for this model: load it if it is not there."""
        with self._lock:
            slot = self._placement.slot(model)
            self._ask(slot, BULK_PATIENCE_S if lane is Lane.BULK else 0.0)
            slot.work = True

    def preload(self, model: str) -> None:
        """Load it though nobody waits for it, as soon as that can be done. One that fails is tried again by itself."""
        with self._lock:
            slot = self._placement.slot(model)
            self._ask(slot, 0.0)
            slot.early = slot.phase is not Phase.RESIDENT

    def unwant(self, model: str) -> None:
        """No work waits for this model any more."""
        with self._lock:
            self._placement.slot(model).work = False
            self._changed.notify_all()

    def renew(self, model: str) -> None:
        """The model has another definition now: it is loaded anew once nobody holds it as it was."""
        with self._lock:
            self._survey.forget(model)
            slot = self._slots.get(model)
            if slot is None:
                return
            slot.outdated = True
            if slot.phase in (Phase.ABSENT, Phase.FAILED):
                slot.phase = Phase.ABSENT
                slot.renew()
            self._changed.notify_all()

    def fail(self, model: str, error: LoadFailed) -> None:
        """Note a failure that another process met with this model. A load that has begun here goes on."""
        with self._lock:
            slot = self._placement.slot(model)
            if slot.phase is Phase.ABSENT:
                slot.phase, slot.error, slot.work = Phase.FAILED, error, False
                slot.retry = self._clock() + COOL_DOWN_S[error.reason]
                slot.early = slot.early and error.reason is not LoadReason.TIMEOUT

    def refusal(self, model: str) -> EngineError | None:
        """Why the model cannot be had now: it can never fit, or it failed and has not cooled down yet."""
        with self._lock:
            slot = self._slots.get(model)
            if slot is not None and slot.phase is Phase.FAILED and slot.retry > self._clock():
                return slot.error
            reason = None if self._proven(model) else self._survey.too_large.get(model)
            return ModelTooLarge(reason) if reason else None

    def available(self, model: str) -> bool:
        """Whether a lease would be given now."""
        with self._lock:
            slot = self._slots.get(model)
            if slot is None or slot.phase is not Phase.RESIDENT or slot.adapter is None or slot.outdated:
                return False
            return slot.adapter.reentrant or not slot.leases

    def there(self, model: str) -> Adapter | None:
        """The adapter of a model that can be had and stays, without a hold on it; None otherwise."""
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

    def use(self, model: str) -> None:
        """Note one more item for a model that is held. Under the lock."""
        self._slots[model].use(1, self._clock(), self._placement.policy)

    def release(self, model: str) -> None:
        """Give a lease back."""
        with self._lock:
            slot = self._slots[model]
            slot.leases -= 1
            slot.used = self._clock()
            if slot.adapter is not None:
                slot.per_token = slot.adapter.measured_per_token() or slot.per_token
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
                        # One error for all who wait: each would hang its own frames on it.
                        raise refusal.with_traceback(None)
                    left = None if until is None else until - self._clock()
                    if self._loading.stopping or (left is not None and left <= 0):
                        raise TimeoutError(f"{model} was not there in time")
                    self._changed.wait(left)
            finally:
                slot.waiters -= 1

    def book(self, model: str) -> Ledger:
        """The books that lend this model's batches their activations: the device's or the host's."""
        slot = self._slots.get(model)
        return self._placement.book(slot) if slot else self.ledger

    def per_token(self, model: str) -> int:
        """Activation bytes of one padded token, once the model's files were read; 0 until then."""
        slot = self._slots.get(model)
        return slot.activations if slot else 0

    def cache_per_token(self, model: str) -> int:
        """Bytes that a model which generates keeps of each token of a sequence."""
        slot = self._slots.get(model)
        return slot.footprint.cache_per_token if slot and slot.footprint else 0

    def moving(self) -> bool:
        """Whether models are coming or leaving, so that memory may be free again soon. Under the lock."""
        return self._placement.moving()

    def loading_seconds(self, model: str) -> float:
        """For how long, in all, loads of this model have run until now."""
        with self._lock:
            slot = self._slots.get(model)
            return slot.loading_seconds(self._clock()) if slot else 0.0

    def load_seconds(self) -> dict[str, float]:
        """The models that can be leased, each with what bringing it back would take."""
        with self._lock:
            return {slot.model: slot.reload_s for slot in self._slots.values() if slot.phase is Phase.RESIDENT}

    def relieve(self, model: str | None = None) -> bool:
        """Evict the least valuable model that is neither held nor pinned, to save a batch. False if there is none.

        `model` is the one whose batch lacks memory, on the device or in the host's.
        """
        return self._loading.relieve(model)

    def snapshot(self) -> tuple[tuple[ModelState, ...], LedgerState]:
        """Every model that was ever asked for, and the account."""
        with self._lock:
            now = self._clock()
            states, times = [], self._placement.held_back(now)
            for slot in self._slots.values():
                book = self._placement.book(slot)
                sizes = book.held(slot.model), book.lent_to(slot.model)
                states.append(slot.state(*sizes, now, times.get(slot.model)))
            return tuple(states), self._placement.account()

    def _proven(self, model: str) -> bool:
        """Whether it was loaded and fitted, whatever was expected of it."""
        slot = self._slots.get(model)
        return slot is not None and slot.measured is not None and slot.phase is not Phase.FAILED

    def _idle(self) -> bool:
        """Whether nothing is being loaded and nobody waits for a load."""
        with self._lock:
            now = self._clock()
            return not any(s.phase is Phase.LOADING or s.loadable(now) for s in self._slots.values())

    def _ask(self, slot: Slot, patience: float) -> None:
        if not slot.wanted:
            slot.asked, slot.patience, slot.starved = self._clock(), patience, None
        slot.patience = min(slot.patience, patience)
        if slot.phase is not Phase.RESIDENT:
            self._changed.notify_all()
