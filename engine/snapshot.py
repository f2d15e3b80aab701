"""What the engine tells of itself: frozen, cheap to take, safe to send. Times are seconds on the engine's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engine.errors import EngineError
from engine.types import BatchStats


class Phase(StrEnum):
    """Where a model stands. One that is `leaving` takes no more batches, one that is `parked` is in host memory."""

    ABSENT = "absent"
    PARKED = "parked"
    LOADING = "loading"
    RESIDENT = "resident"
    LEAVING = "leaving"
    FAILED = "failed"


RATIOS = (0.25, 0.5, 0.67, 0.8, 0.91, 1.1, 1.25, 1.5, 2.0, 4.0)
"""Upper bounds of the classes in which actual over predicted time is counted; one class more is open."""


@dataclass(frozen=True, slots=True)
class ModelWork:
    """Running totals of one model's passes.

    `ratios` counts them by actual over predicted time, in classes of RATIOS; `ratio_sum` is the sum of these.
    """

    passes: int = 0
    items: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    seconds: float = 0.0
    predicted_s: float = 0.0
    ratios: tuple[int, ...] = (0,) * (len(RATIOS) + 1)
    ratio_sum: float = 0.0


class Reason(StrEnum):
    """Why a model has left the device."""

    ROOM = "room"
    """Another one needed the room."""
    IDLE = "idle"
    """Its keep-alive ended."""
    MEMORY = "memory"
    """A batch ran out of memory."""
    OVER = "over"
    """A newcomer took more than it had said and passed the budget, or somebody else took what was given to ours."""
    CHANGED = "changed"
    """Its definition in the catalog did."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A model's last eviction: when, why, and for which model, if it was for one."""

    at: float
    reason: Reason
    by: str | None = None


@dataclass(frozen=True, slots=True)
class ModelState:
    """One model that was ever asked for. Sizes are bytes.

    `bytes` is what its weights take on the device, `estimate` what was expected before the load, `activations` what
    its running batches have been lent, `host_bytes` what it takes in host memory. `load_s` is what its last load from
    files took and `restore_s` its last return from host memory; `loads` and `restores` count them, `evicted` the
    evictions by reason, `dropped` how often its copy in host memory was given up. `waiting` counts its waiting items,
    `work` what its batches came to.
    """

    model: str
    phase: Phase
    bytes: int
    leases: int
    pinned: bool
    loads: int
    evictions: int
    load_s: float
    last_used: float | None
    last_error: EngineError | None
    waiting: int = 0
    estimate: int = 0
    activations: int = 0
    host_bytes: int = 0
    restores: int = 0
    restore_s: float = 0.0
    loading_s: float | None = None
    """For how long the load under way has run."""
    evicted: Mapping[Reason, int] = field(default_factory=dict)
    dropped: Mapping[Reason, int] = field(default_factory=dict)
    departure: Departure | None = None
    work: ModelWork | None = None
    retry_at: float | None = None
    """After a failed load: from when it may be tried again."""
    comes_at: float | None = None
    """Of one that is wanted and held back or paused: from when its load may begin, if nothing changes before."""


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The device's account: what models may take, what their weights take, what batches have for activations.

    `others` is what other processes of ours hold on the device, `foreign` what is used there and is nobody's of ours,
    `host` and `host_budget` what models take in host memory and may take there.
    """

    budget: int
    weights: int
    lent: int
    total: int = 0
    free: int = 0
    others: int = 0
    foreign: int = 0
    host: int = 0
    host_budget: int = 0


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """The engine at one moment. `running` counts batches, `waiting_works` works of which items wait."""

    device: str
    models: tuple[ModelState, ...]
    ledger: LedgerState
    batches: BatchStats
    waiting_works: int
    waiting_items: int
    running: int
    lost: bool
    kind: str = ""
    """The hardware, as costs are kept by: see `engine.device.Device.hardware`."""
    sequences: int = 0
    """Sequences that are being generated."""
    too_large: Mapping[str, str] = field(default_factory=dict)
    """Models of the catalog that can never fit this device's budget, each with the reason."""
