"""What is known of one model on a device, and who is told when that changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.adapters.base import Adapter
from engine.errors import DeviceLost, EngineError
from engine.eviction import EvictionPolicy, Resident, decayed
from engine.snapshot import ModelState, Phase
from engine.types import Footprint


class Watcher(Protocol):
    """Told of loads, from a loader thread and without the lock."""

    def load_started(self, model: str) -> None:
        """A load has begun: files are looked for, room is made, weights are read."""

    def load_ended(self, model: str) -> None:
        """A load has ended, well or badly."""

    def ready(self, model: str) -> None:
        """The model can be leased."""

    def refused(self, model: str, error: EngineError) -> None:
        """The model could not be loaded. It is not wanted any more, until somebody wants it again."""

    def lost(self, error: DeviceLost) -> None:
        """The device cannot compute any more."""


@dataclass(slots=True)
class Slot:
    """One model. `asked` is since when it is wanted without being there; `patience` delays it behind others.

    It is wanted while work waits for it (`work`) or threads do (`waiters`).
    """

    model: str
    pinned: bool
    phase: Phase = Phase.ABSENT
    adapter: Adapter | None = None
    footprint: Footprint | None = None
    floor: int = 0
    leases: int = 0
    work: bool = False
    waiters: int = 0
    asked: float = 0.0
    patience: float = 0.0
    loads: int = 0
    evictions: int = 0
    load_s: float = 0.0
    loaded: float = 0.0
    used: float | None = None
    demand: float = 0.0
    error: EngineError | None = None
    retry: float = 0.0
    loading_since: float | None = None
    loading_total: float = 0.0

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for it."""
        return self.work or self.waiters > 0

    @property
    def due(self) -> float:
        """Which of the absent models is loaded first: the one with the least."""
        return self.asked + self.patience

    def loadable(self, now: float) -> bool:
        """Whether it is wanted, not there, and not cooling down after a failure."""
        return self.wanted and (self.phase is Phase.ABSENT or (self.phase is Phase.FAILED and self.retry <= now))

    def use(self, items: int, now: float, policy: EvictionPolicy) -> None:
        """Note that so many items are about to run."""
        self.demand = self._demand(now, policy) + items
        self.used = now

    def resident(self, size: int, now: float, policy: EvictionPolicy) -> Resident:
        """The model as eviction sees it."""
        return Resident(
            model=self.model,
            bytes=size,
            pinned=self.pinned,
            wanted=self.wanted,
            loaded=self.loaded,
            used=self.loaded if self.used is None else self.used,
            reload_s=max(self.load_s, 0.001),
            demand=self._demand(now, policy),
        )

    def state(self, size: int) -> ModelState:
        """The model as the snapshot tells it."""
        return ModelState(
            model=self.model,
            phase=self.phase,
            bytes=size,
            leases=self.leases,
            pinned=self.pinned,
            loads=self.loads,
            evictions=self.evictions,
            load_s=self.load_s,
            last_used=self.used,
            last_error=self.error,
            retry_at=self.retry if self.phase is Phase.FAILED else None,
        )

    def loading_seconds(self, now: float) -> float:
        """For how long, in all, loads of this model have run."""
        return self.loading_total + (0.0 if self.loading_since is None else now - self.loading_since)

    def _demand(self, now: float, policy: EvictionPolicy) -> float:
        return decayed(self.demand, now - (self.loaded if self.used is None else self.used), policy)
