"""What the engine tells of itself: frozen, cheap to take, safe to send. Times are seconds on the engine's clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.errors import EngineError
from engine.types import BatchStats


class Phase(StrEnum):
    """Where a model stands on the device. One that is `leaving` takes no more batches."""

    ABSENT = "absent"
    LOADING = "loading"
    RESIDENT = "resident"
    LEAVING = "leaving"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ModelState:
    """One model that was ever asked for. `load_s` is what its last load took, `waiting` its waiting items."""

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


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The device's account: what models may take, what their weights take, what batches have for activations."""

    budget: int
    weights: int
    lent: int


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
