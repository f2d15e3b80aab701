"""What batches cost on this device: a prior at first, then what the batches that really ran have taught."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from catalog.cost import coefficients
from catalog.schema import CostCoefficients, Spec


class Pass(StrEnum):
    """What a pass over the device does. Each has a cost of its own."""

    RUN = "run"
    READ = "read"
    """Reading a prompt, or a part of one, before anything is generated."""
    STEP = "step"
    """One new token of each of some sequences."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One pass that ran well. `lengths` are those of its items; `padded` says that each was padded to the longest.

    `threads` is how many it could compute with. `crowded` tells that other passes ran beside it.
    """

    model: str
    kind: Pass
    lengths: Sequence[int]
    padded: bool
    seconds: float
    threads: int = 1
    crowded: bool = False


@dataclass(frozen=True, slots=True)
class CostRecord:
    """What is kept of one model across restarts: plain numbers, opaque to all but this module's author."""

    model: str
    device: str
    state: dict[str, Any]


class CostBook:
    """The costs of all models on one device. Thread-safe; every method takes some microseconds."""

    def __init__(self, device: str, records: Iterable[CostRecord] = ()) -> None:
        self._device = device

    def coefficients(self, model: str, spec: Spec, kind: Pass = Pass.RUN, threads: int = 1) -> CostCoefficients:
        """The coefficients to plan with: the prior until batches have run, then the fit."""
        return coefficients(spec, self._device)

    def batch_tokens(self, model: str, least: int, most: int) -> int | None:
        """The size of batch, in padded tokens, that has proved the quickest for each token; None while unknown."""
        return None

    def observe(self, ran: Ran, spec: Spec) -> None:
        """Learn from a pass that ran."""

    def changed(self) -> list[CostRecord]:
        """The records that have changed since the last call."""
        return []
