"""What is known of one model on a device, and who is told when that changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from engine.adapters.base import Adapter, Place
from engine.errors import DeviceLost, EngineError
from engine.eviction import EvictionPolicy, Newcomer, Resident, decayed
from engine.snapshot import Departure, ModelState, Phase, Reason
from engine.types import Footprint


class Watcher(Protocol):
    """Told of loads and departures, from the thread that does them and without the lock."""

    def load_started(self, model: str) -> None:
        """A load has begun: files are looked for, room is made, weights are read or come back from host memory."""

    def load_ended(self, model: str) -> None:
        """A load has ended, well or badly."""

    def ready(self, model: str) -> None:
        """The model can be leased."""

    def left(self, model: str) -> None:
        """The model was evicted and cannot be leased any more."""

    def refused(self, model: str, error: EngineError) -> None:
        """The model could not be loaded. It is not wanted any more, until somebody wants it again."""

    def lost(self, error: DeviceLost) -> None:
        """The device cannot compute any more."""


@dataclass(slots=True, eq=False)
class Slot:
    """One model. `asked` is since when it is wanted without being there; `patience` delays it behind others.

    It is wanted while work waits for it (`work`), threads do (`waiters`), or it was to be there from the start and has
    not come yet (`early`). `measured` is what its weights took when it was last loaded, `host` what they take in host
    memory while it is parked, or on its way back from there. `again` is when a load for which the device had no room
    may be tried once more, `starved` since when there is none. One that is `outdated` has another definition by now: it
    is leased no more, and leaves as soon as nobody holds it.
    """

    model: str
    pinned: bool
    phase: Phase = Phase.ABSENT
    adapter: Adapter | None = None
    footprint: Footprint | None = None
    place: Place = Place.DEVICE
    parks: bool = False
    keep_alive_s: float | None = None
    floor: int = 0
    measured: int | None = None
    per_token: int = 0
    host: int = 0
    leases: int = 0
    work: bool = False
    waiters: int = 0
    early: bool = False
    asked: float = 0.0
    patience: float = 0.0
    again: float = 0.0
    starved: float | None = None
    loads: int = 0
    restores: int = 0
    evictions: int = 0
    evicted: dict[Reason, int] = field(default_factory=dict)
    dropped: dict[Reason, int] = field(default_factory=dict)
    departure: Departure | None = None
    load_s: float = 0.0
    restore_s: float = 0.0
    loaded: float = 0.0
    used: float | None = None
    demand: float = 0.0
    error: EngineError | None = None
    retry: float = 0.0
    outdated: bool = False
    loading_since: float | None = None
    loading_total: float = 0.0

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for it."""
        return self.work or self.early or self.waiters > 0

    @property
    def due(self) -> float:
        """Which of the absent models is loaded first: the one with the least."""
        return self.asked + self.patience

    @property
    def known(self) -> bool:
        """Whether its files were read, so that its size is known."""
        return self.footprint is not None

    @property
    def weights(self) -> int:
        """Bytes that its next load needs: what it took the last time, else what its files say."""
        if self.measured is not None:
            return self.measured
        return self.footprint.weights if self.footprint else 0

    @property
    def activations(self) -> int:
        """Bytes of one padded token in a batch: as measured, if the adapter can tell, else as estimated."""
        return self.per_token or (self.footprint.per_token if self.footprint else 0)

    @property
    def away(self) -> Phase:
        """The phase it has while it is not on the device."""
        return Phase.PARKED if self.host else Phase.ABSENT

    @property
    def reload_s(self) -> float:
        """What bringing it back takes: a copy, once it was seen to come back that way, else its load."""
        return self.restore_s if self.parks and self.restores else self.load_s

    @property
    def since(self) -> float:
        """Since when it has not been used: its last use, or when it came."""
        return self.loaded if self.used is None else max(self.used, self.loaded)

    def loadable(self, now: float) -> bool:
        """Whether it is wanted, not there, and not cooling down after a failure."""
        away = self.phase in (Phase.ABSENT, Phase.PARKED)
        return self.wanted and (away or (self.phase is Phase.FAILED and self.retry <= now))

    def use(self, items: int, now: float, policy: EvictionPolicy) -> None:
        """Note that so many items are about to run."""
        self.demand = self._demand(now, policy) + items
        self.used = now

    def renew(self) -> None:
        """Forget what was read of its files, for a new definition. It is away."""
        self.adapter = self.footprint = self.measured = self.error = None
        self.per_token, self.retry, self.outdated = 0, 0.0, False
        self.early = self.early or self.pinned

    def departed(self, reason: Reason, by: str | None, now: float) -> None:
        """Note an eviction."""
        self.evictions += 1
        self.evicted[reason] = self.evicted.get(reason, 0) + 1
        self.departure = Departure(now, reason, by)
        self.asked = now

    def resident(self, size: int, now: float, policy: EvictionPolicy) -> Resident:
        """The model as eviction sees it."""
        return Resident(
            model=self.model,
            bytes=size,
            pinned=self.pinned,
            wanted=self.wanted,
            loaded=self.loaded,
            used=self.loaded if self.used is None else self.used,
            reload_s=max(self.reload_s, 0.001),
            demand=self._demand(now, policy),
            leased=self.leases > 0,
        )

    def newcomer(self, waiting: int, *, alone: bool = False) -> Newcomer:
        """The model as one that is to come. Where only bulk work waits, that counts as one item, however much it is."""
        displaced = self.departure is not None and self.departure.reason is Reason.ROOM
        coming_s = self.restore_s if self.host else self.load_s
        return Newcomer(
            due=self.due,
            waiting=1 if self.patience else max(waiting, self.waiters, 1),
            reload_s=max(coming_s, 0.001),
            displaced=self.loaded if displaced else None,
            alone=alone,
        )

    def parked(self, size: int, now: float, policy: EvictionPolicy) -> Resident:
        """The model as one in host memory, `size` bytes: what it would lose there is that its return is a copy."""
        return Resident(
            model=self.model,
            bytes=size,
            pinned=False,
            wanted=self.wanted,
            loaded=self.loaded,
            used=self.since,
            reload_s=max(self.load_s - self.restore_s, 0.001),
            demand=self._demand(now, policy),
        )

    def state(self, size: int, lent: int, now: float, comes_at: float | None = None) -> ModelState:
        """The model as the snapshot tells it. `comes_at` is when it may come, if it may not yet."""
        hosted = self.place is Place.HOST
        return ModelState(
            model=self.model,
            phase=self.phase,
            bytes=0 if hosted else size,
            leases=self.leases,
            pinned=self.pinned,
            loads=self.loads,
            evictions=self.evictions,
            load_s=self.load_s,
            last_used=self.used,
            last_error=self.error,
            estimate=self.footprint.weights if self.footprint else 0,
            activations=lent,
            host_bytes=size if hosted else self.host,
            restores=self.restores,
            restore_s=self.restore_s,
            loading_s=None if self.loading_since is None else now - self.loading_since,
            evicted=dict(self.evicted),
            dropped=dict(self.dropped),
            departure=self.departure,
            retry_at=self.retry if self.phase is Phase.FAILED else None,
            comes_at=comes_at,
        )

    def loading_seconds(self, now: float) -> float:
        """For how long, in all, loads of this model have run."""
        return self.loading_total + (0.0 if self.loading_since is None else now - self.loading_since)

    def _demand(self, now: float, policy: EvictionPolicy) -> float:
        return decayed(self.demand, now - (self.loaded if self.used is None else self.used), policy)
