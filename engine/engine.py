"""The engine: works go in, outcomes come out through a listener. Lanes compute, a loader thread loads beside them.

This is its public face, and what ties its parts: the residency brings models (`engine/residency.py`), lanes take what
waits and run it (`engine/lanes.py`), the hand knows what is owed (`engine/hand.py`). One lock guards them all; it is
not held while a batch runs, a model loads or a listener hears.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from catalog.schema import Spec
from catalog.terms import Lane
from catalog.weights import locate
from engine.account import Account
from engine.adapters.base import Place
from engine.costs import CostBook
from engine.device import Device, DeviceKind
from engine.errors import DeviceLost, EngineError, LoadFailed
from engine.eviction import DEFAULT_EVICTION, EvictionPolicy
from engine.hand import Hand
from engine.lanes import Lanes
from engine.limits import EngineLimits, floor_tokens, lane_count
from engine.loader import Models
from engine.means import Means
from engine.passes import Passes
from engine.residency import Residency
from engine.roster import Roster
from engine.scheduler import DEFAULT_POLICY, Policy
from engine.snapshot import EngineSnapshot, ModelState
from engine.types import Finished, Listener, Work

__all__ = ["Engine", "EngineLimits", "EngineSnapshot"]

log = logging.getLogger(__name__)

_STOP_GRACE_S = 2.0


class Engine:
    """Many models on one device. Thread-safe; every method returns at once but `drain` and `stop`.

    Every work that `submit` takes is told to the listener exactly once, unless it is cancelled, handed back, or the
    device is lost. `costs` keeps what passes cost; without it the engine begins with guesses.
    """

    def __init__(
        self,
        catalog: Models,
        device: Device,
        limits: EngineLimits,
        listener: Listener,
        clock: Callable[[], float] = time.monotonic,
        *,
        policy: Policy = DEFAULT_POLICY,
        eviction: EvictionPolicy = DEFAULT_EVICTION,
        find: Callable[[Spec], Path | None] = locate,
        account: Account | None = None,
        costs: CostBook | None = None,
    ) -> None:
        costs = CostBook(device.hardware, lanes=lane_count(limits, device)) if costs is None else costs
        self._roster = Roster(catalog, limits, device, costs)
        self._device = device
        self._limits = limits
        self._listener = listener
        self._lock = threading.RLock()
        self._quiet = threading.Condition(self._lock)
        self._telling = threading.Lock()
        self._clock = clock
        self._lanes: dict[Place, Lanes] = {}
        self._residency = Residency(
            catalog,
            device,
            limits.budget_bytes,
            self,
            clock=clock,
            floor_tokens=floor_tokens(limits, device),
            pinned=[self._roster.key(name) for name in limits.pinned],
            policy=eviction,
            lock=self._lock,
            find=find,
            account=account,
            host_bytes=limits.host_bytes,
            keep_alive_s=limits.keep_alive_s,
            waiting=self._waiting,
        )
        self._hand = Hand(self._residency.loading_seconds, clock, together=device.kind is DeviceKind.CPU)
        self._passes = Passes(costs)
        means = Means(
            device=device,
            limits=limits,
            listener=listener,
            clock=clock,
            lock=self._lock,
            residency=self._residency,
            roster=self._roster,
            hand=self._hand,
            passes=self._passes,
            costs=costs,
            lost=self.lost,
        )
        counts = {Place.DEVICE: lane_count(limits, device), Place.HOST: limits.host_lanes}
        for place, count in counts.items():
            others = list(self._lanes.values())
            self._lanes[place] = Lanes(place, count, policy, means, self._settle, others)
            for other in others:
                other.others.append(self._lanes[place])
        self._closed = False

    def start(self) -> None:
        """Begin to load and compute. Raises UnknownModel for a name in `preload` that the catalog does not know."""
        for name in (*self._limits.pinned, *self._limits.preload):
            self._residency.preload(self._roster.key(name))
        self._residency.start(self._limits.loaders)
        for lanes in self._lanes.values():
            lanes.start()

    def submit(self, works: Sequence[Work]) -> list[str]:
        """Take in works. One that is in hand already is left as it is.

        One that cannot run is finished at once, from this call. Returns the ids that were not taken because the engine
        takes no more; they are not reported later.
        """
        done: list[Finished] = []
        wanted: dict[tuple[str, Lane], None] = {}
        with self._lock:
            if self._closed:
                return [work.id for work in works]
            for work in works:
                if work.id in self._hand:
                    continue
                error = self._roster.look_up(work.model) or self._residency.refusal(work.model)
                if error is not None or not work.items:
                    done.append(self._hand.refuse(work, error or EngineError("The work has no items.")))
                    continue
                self._hand.take(work)
                self._of(work).add(work)
                wanted[work.model, work.lane] = None
            for model, lane in wanted:
                self._residency.want(model, lane)
            self._wake()
        self._tell(done)
        return []

    def refuse(self, model: str, error: LoadFailed) -> None:
        """Take a model for one that cannot be loaded, as if a load had just failed so, until it has cooled down."""
        self._residency.fail(model, error)
        self.refused(model, error)

    def renew(self, models: Iterable[str]) -> None:
        """These models are defined anew in the catalog. What runs ends as it began; what comes has the new ones."""
        for model in models:
            with self._lock:
                if not self._roster.renew(model):
                    log.warning("%s runs in another way by its new definition: restart the worker for it", model)
                    continue
            self._residency.renew(model)

    def cancel(self, ids: Iterable[str]) -> list[str]:
        """Drop these works and return those that were in hand. What runs goes on running, and is not reported.

        What is generated ends with the step that runs.
        """
        with self._lock:
            return self._drop(ids)

    def hand_back(self) -> list[str]:
        """Drop and return the works of which no item has started, and take no more. The others run to their end."""
        with self._lock:
            self._closed = True
            return self._drop(self._hand.untouched())

    def drain(self, timeout_s: float) -> bool:
        """Wait until no work is in hand, nothing runs and no session holds its model; False if that takes longer."""
        with self._lock:
            return self._quiet.wait_for(self._is_quiet, timeout_s)

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the lanes once their passes have ended, and unload the models. What still waits is not reported.

        A batch that does not end in time is interrupted; if it does not heed that, its thread is left behind.
        """
        with self._lock:
            self._closed = self._hand.stopping = True
            self._wake_all()
        until = self._clock() + timeout_s
        for lanes in self._lanes.values():
            lanes.join(until)
        with self._lock:
            late = [run.adapter for run in self._hand.running.values()]
        for adapter in late:
            adapter.interrupt()
        until = self._clock() + _STOP_GRACE_S
        for lanes in self._lanes.values():
            lanes.join(until)
            lanes.sessions.close()
        self._residency.stop(_STOP_GRACE_S)

    def snapshot(self) -> EngineSnapshot:
        """The engine at this moment."""
        with self._lock:
            models, ledger = self._residency.snapshot()
            lanes = self._lanes.values()
            return EngineSnapshot(
                device=self._device.name,
                models=tuple(self._state(model) for model in models),
                ledger=ledger,
                batches=self._passes.stats,
                waiting_works=sum(one.scheduler.works for one in lanes),
                waiting_items=sum(one.scheduler.items for one in lanes),
                running=len(self._hand.running),
                lost=self._hand.lost,
                kind=self._device.hardware,
                sequences=sum(one.sessions.sequences for one in lanes),
                too_large=self._residency.too_large,
            )

    def load_started(self, model: str) -> None:
        """The residency begins a load."""
        self._listener.load_started(model, self._limits.load_limit_s)

    def load_ended(self, model: str) -> None:
        """The residency has ended a load."""
        self._listener.load_ended(model)

    def ready(self, model: str) -> None:
        """A model is there: its works can run."""
        with self._lock:
            if not self._waiting(model):
                self._residency.unwant(model)
            self._settle()
        self._say_residents()

    def left(self, model: str) -> None:
        """A model was evicted: say which are still there."""
        with self._lock:
            self._settle()
        self._say_residents()

    def refused(self, model: str, error: EngineError) -> None:
        """A model could not be loaded: the works that wait for it fail with the reason."""
        done: list[Finished] = []
        with self._lock:
            for lanes in self._lanes.values():
                for work in lanes.drop_model(model):
                    done += self._hand.give_up(work.id, error)
            self._settle()
        self._tell(done)

    def lost(self, error: DeviceLost) -> None:
        """The device cannot compute any more: take nothing, run nothing, say so once."""
        with self._lock:
            if self._hand.lost:
                return
            self._hand.lost = self._closed = True
            self._wake_all()
        log.error("%s", error.message)
        self._listener.device_lost(error)

    def _of(self, work: Work) -> Lanes:
        return self._lanes[self._roster[work.model].place]

    def _drop(self, ids: Iterable[str]) -> list[str]:
        dropped = [work for work_id in ids if (work := self._hand.drop(work_id)) is not None]
        for work in dropped:
            self._of(work).drop(work.id)
        self._settle()
        return [work.id for work in dropped]

    def _waiting(self, model: str) -> int:
        return sum(lanes.scheduler.waiting(model) for lanes in self._lanes.values())

    def _state(self, model: ModelState) -> ModelState:
        return replace(model, waiting=self._waiting(model.model), work=self._passes.of_model(model.model))

    def _settle(self) -> None:
        """Works, passes or memory have gone: wake a lane that may go on now, and whoever waits for quiet."""
        for lanes in self._lanes.values():
            lanes.sessions.memory_back()
            lanes.wake()
        if self._is_quiet():
            self._quiet.notify_all()

    def _is_quiet(self) -> bool:
        return self._hand.quiet and not any(lanes.sessions.open for lanes in self._lanes.values())

    def _wake(self) -> None:
        for lanes in self._lanes.values():
            lanes.wake()

    def _wake_all(self) -> None:
        for lanes in self._lanes.values():
            lanes.wake_all()

    def _say_residents(self) -> None:
        """One at a time, so that the last that is told is the last that was true."""
        with self._telling:
            self._listener.residents(self._residency.load_seconds())

    def _tell(self, done: Sequence[Finished]) -> None:
        if done:
            self._listener.finished(done)
