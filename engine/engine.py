"""The engine: works go in, outcomes come out through a listener. Lanes compute, a loader thread loads beside them.

A lane that is free takes the next batch from what waits at that moment; it never waits for a batch to grow. One lock
guards the scheduler, the residency and the works; it is not held while a batch runs, a model loads or a listener hears.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from catalog.schema import Spec
from catalog.terms import Lane
from catalog.weights import locate
from engine.account import Account
from engine.adapters.base import Adapter
from engine.batcher import Bounds
from engine.device import Device, DeviceKind
from engine.errors import DeadlinePassed, DeviceLost, EngineError, LoadFailed
from engine.eviction import DEFAULT_EVICTION, EvictionPolicy
from engine.limits import EngineLimits, floor_tokens, lane_count
from engine.loader import Models
from engine.progress import Progress
from engine.residency import Residency
from engine.roster import Roster
from engine.runner import run_batch, use_threads
from engine.scheduler import DEFAULT_POLICY, Policy, Scheduler
from engine.snapshot import EngineSnapshot
from engine.types import Batch, BatchStats, Finished, Listener, Outcome, Work

__all__ = ["Engine", "EngineLimits", "EngineSnapshot"]

log = logging.getLogger(__name__)

_STOP_GRACE_S = 2.0


@dataclass(slots=True)
class _Run:
    """A batch in flight: the adapter it holds, the activation bytes it was lent, the threads it may use."""

    batch: Batch
    adapter: Adapter
    lent: int
    threads: int


class Engine:
    """Many models on one device. Thread-safe; every method returns at once but `drain` and `stop`.

    Every work that `submit` takes is told to the listener exactly once, unless it is cancelled, handed back, or the
    device is lost.
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
    ) -> None:
        self._roster = Roster(catalog, limits, device)
        self._device = device
        self._limits = limits
        self._listener = listener
        self._clock = clock
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._quiet = threading.Condition(self._lock)
        self._scheduler = Scheduler(policy)
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
        )
        self._works: dict[str, Progress] = {}
        self._running: dict[int, _Run] = {}
        self._stats = BatchStats()
        self._count = lane_count(limits, device)
        self._lanes: list[threading.Thread] = []
        self._closed = False
        self._stopping = False
        self._lost = False

    def start(self) -> None:
        """Begin to load and compute. Raises UnknownModel for a name in `preload` that the catalog does not know."""
        for name in (*self._limits.pinned, *self._limits.preload):
            self._residency.want(self._roster.key(name))
        self._residency.start(self._limits.loaders)
        for number in range(self._count):
            lane = threading.Thread(target=self._lane, name=f"lane-{number}", daemon=True)
            self._lanes.append(lane)
            lane.start()

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
                if work.id in self._works:
                    continue
                error = self._roster.look_up(work.model) or self._residency.refusal(work.model)
                progress = Progress(work, self._residency.loading_seconds(work.model))
                if error is not None or not work.items:
                    done.append(self._given_up(progress, error or EngineError("The work has no items.")))
                    continue
                self._works[work.id] = progress
                self._scheduler.add(work, self._roster[work.model].group(work.verb, work.options))
                wanted[work.model, work.lane] = None
            for model, lane in wanted:
                self._residency.want(model, lane)
            self._wake.notify()
        self._tell(done)
        return []

    def refuse(self, model: str, error: LoadFailed) -> None:
        """Take a model for one that cannot be loaded, as if a load had just failed so, until it has cooled down."""
        self._residency.fail(model, error)
        self.refused(model, error)

    def cancel(self, ids: Iterable[str]) -> list[str]:
        """Drop these works and return those that were in hand. What runs goes on running, and is not reported."""
        with self._lock:
            dropped = [work_id for work_id in ids if self._works.pop(work_id, None) is not None]
            for work_id in dropped:
                self._drop(work_id)
            self._settle()
        return dropped

    def hand_back(self) -> list[str]:
        """Drop and return the works of which no item has started, and take no more. The others run to their end."""
        with self._lock:
            self._closed = True
            untouched = [work.id for work in self._scheduler.untouched()]
            for work_id in untouched:
                del self._works[work_id]
                self._drop(work_id)
            self._settle()
        return untouched

    def drain(self, timeout_s: float) -> bool:
        """Wait until no work is in hand and nothing runs; False if that takes longer."""
        with self._lock:
            return self._quiet.wait_for(lambda: not self._works and not self._running, timeout_s)

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the lanes once their batches have ended, and unload the models. What still waits is not reported.

        A batch that does not end in time is interrupted; if it does not heed that, its thread is left behind.
        """
        with self._lock:
            self._closed = self._stopping = True
            self._wake.notify_all()
        until = self._clock() + timeout_s
        for lane in self._lanes:
            lane.join(max(0.0, until - self._clock()))
        with self._lock:
            late = [run.adapter for run in self._running.values()]
        for adapter in late:
            adapter.interrupt()
        for lane in self._lanes:
            lane.join(_STOP_GRACE_S)
        self._residency.stop(_STOP_GRACE_S)

    def snapshot(self) -> EngineSnapshot:
        """The engine at this moment."""
        with self._lock:
            models, ledger = self._residency.snapshot()
            return EngineSnapshot(
                device=self._device.name,
                models=tuple(replace(m, waiting=self._scheduler.waiting(m.model)) for m in models),
                ledger=ledger,
                batches=replace(self._stats, extra=dict(self._stats.extra)),
                waiting_works=self._scheduler.works,
                waiting_items=self._scheduler.items,
                running=len(self._running),
                lost=self._lost,
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
            self._settle_model(model)
            self._wake.notify()
        self._listener.residents(self._residency.load_seconds())

    def left(self, model: str) -> None:
        """A model was evicted: say which are still there."""
        self._listener.residents(self._residency.load_seconds())

    def refused(self, model: str, error: EngineError) -> None:
        """A model could not be loaded: the works that wait for it fail with the reason."""
        with self._lock:
            done = [self._given_up(self._works.pop(work.id), error) for work in self._scheduler.drop_model(model)]
            self._settle()
        self._tell(done)

    def lost(self, error: DeviceLost) -> None:
        """The device cannot compute any more: take nothing, run nothing, say so once."""
        with self._lock:
            if self._lost:
                return
            self._lost = self._closed = True
            self._wake.notify_all()
        log.error("%s", error.message)
        self._listener.device_lost(error)

    def _lane(self) -> None:
        """A lane thread: batch after batch, asleep while there is none."""
        try:
            while True:
                run, expired = self._await()
                self._tell(expired)
                if run is not None:
                    self._compute(run)
                elif not expired:
                    return
        except Exception:
            log.exception("a lane met an error of the engine's own")
            self.lost(DeviceLost("The engine met an error of its own and cannot go on; the process restarts."))

    def _await(self) -> tuple[_Run | None, list[Finished]]:
        """The next batch, or works whose deadline has passed; neither when it is time to end."""
        with self._lock:
            while not self._stopping and not self._lost:
                now = self._clock()
                late = [self._works.pop(work.id) for work in self._scheduler.expire(now)]
                if late:
                    self._settle()
                    return None, [self._given_up(progress, DeadlinePassed()) for progress in late]
                run = self._next()
                if run is not None:
                    return run, []
                deadline = self._scheduler.next_deadline()
                self._wake.wait(None if deadline is None else max(0.0, deadline - now))
        return None, []

    def _next(self) -> _Run | None:
        """Take the next batch from what waits, and what it needs to run."""
        if any(run.batch.alone for run in self._running.values()):
            return None
        batch = self._scheduler.pick(self._ready, idle=not self._running)
        if batch is None:
            return None
        count = len(batch.entries)
        adapter = self._residency.lease(batch.model, count)
        if adapter is None:
            raise RuntimeError(f"{batch.model} was ready and cannot be leased")
        lent = self._residency.per_token(batch.model) * count * batch.padded_length
        self._residency.ledger.lend(lent)
        # One batch that is alone takes all cores; side by side, single-threaded lanes get more done.
        busy = self._running or self._scheduler.items
        threads = max(1, self._device.cores // self._count) if busy else self._device.cores
        run = self._running[batch.id] = _Run(batch, adapter, lent, threads)
        self._settle_model(batch.model)
        if self._scheduler.items:
            self._wake.notify()
        return run

    def _ready(self, name: str) -> Bounds | None:
        """What the model's next batch may be, with the activation bytes that are free."""
        if not self._residency.available(name):
            return None
        model = self._roster[name]
        per_token = self._residency.per_token(name)
        if not per_token:
            return model.bounds
        room = max(0, self._residency.ledger.lendable) // per_token
        if room < model.least and self._running:
            return None
        return replace(model.bounds, tokens=min(model.bounds.tokens, max(room, model.least)))

    def _compute(self, run: _Run) -> None:
        self._listener.batch_started(run.batch, self._limits.batch_limit_s)
        if self._device.kind is DeviceKind.CPU:
            use_threads(run.threads)
        began = self._clock()
        try:
            outcomes = run_batch(run.adapter, run.batch, clear=self._device.clear, relieve=self._residency.relieve)
        except DeviceLost as error:
            # Lost first: no other lane may start on the device that is about to be given up.
            self.lost(error)
            self._release(run)
            return
        done = self._collect(run, outcomes, began)
        self._listener.batch_ended(run.batch)
        self._tell(done)

    def _collect(self, run: _Run, outcomes: Sequence[Outcome], began: float) -> list[Finished]:
        """File a batch's outcomes and return the works that they complete."""
        batch, done = run.batch, []
        with self._lock:
            ended = self._clock()
            self._count_batch(batch, ended - began)
            share = 1.0 / len(batch.entries)
            parts: dict[str, int] = {}
            for entry, outcome in zip(batch.entries, outcomes, strict=True):
                progress = self._works.get(entry.work.id)
                # A work that was cancelled may have come again under its id.
                if progress is None or progress.work is not entry.work:
                    continue
                progress.put(entry.item.index, outcome)
                parts[entry.work.id] = parts.get(entry.work.id, 0) + 1
            loading = self._residency.loading_seconds(batch.model)
            for work_id, items in parts.items():
                progress = self._works[work_id]
                progress.ran(began, ended, items * share)
                if not progress.left:
                    del self._works[work_id]
                    done.append(progress.finished(ended, loading))
            self._release(run)
        return done

    def _release(self, run: _Run) -> None:
        with self._lock:
            del self._running[run.batch.id]
            self._residency.ledger.lend(-run.lent)
            self._residency.release(run.batch.model)
            self._settle()

    def _count_batch(self, batch: Batch, seconds: float) -> None:
        stats = self._stats
        stats.batches += 1
        stats.items += len(batch.entries)
        stats.real_tokens += sum(entry.item.length for entry in batch.entries)
        stats.padded_tokens += len(batch.entries) * batch.padded_length
        stats.device_s += seconds

    def _drop(self, work_id: str) -> None:
        work = self._scheduler.drop(work_id)
        if work is not None:
            self._settle_model(work.model)

    def _settle_model(self, model: str) -> None:
        """A model that nothing waits for any more is not wanted."""
        if not self._scheduler.waiting(model):
            self._residency.unwant(model)

    def _settle(self) -> None:
        """Works or batches have gone: wake a lane that may go on now, and whoever waits for quiet."""
        self._wake.notify()
        if not self._works and not self._running:
            self._quiet.notify_all()

    def _given_up(self, progress: Progress, error: EngineError) -> Finished:
        loading = self._residency.loading_seconds(progress.work.model)
        return progress.failed(error, self._clock(), loading)

    def _tell(self, done: Sequence[Finished]) -> None:
        if done:
            self._listener.finished(done)
