"""Watches generators step by step, and what works that generate came to."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from catalog.schema import CostCoefficients
from engine.adapters.base import Part
from engine.adapters.fake_generator import FakeGeneratorAdapter
from engine.engine import Engine
from engine.snapshot import ModelState
from engine.types import Output, Work
from tests.unit.engine.recorder import PATIENCE_S, Recorder

COST = CostCoefficients(base=1.0, per_token=0.1, per_new=1.0)


class Steps:
    """Watches all steps of generators, and holds them up once told to, each until it is let go."""

    def __init__(self) -> None:
        self.log: list[list[tuple[str, int]]] = []
        self.adapters: list[FakeGeneratorAdapter] = []
        self.open: list[int] = []
        self._changed = threading.Condition()
        self._free: int | None = None

    def hold(self) -> None:
        self._free = 0

    def go(self, steps: int | None = 1) -> None:
        """Let so many more steps run; None: all."""
        with self._changed:
            self._free = None if steps is None or self._free is None else self._free + steps
            self._changed.notify_all()

    def until(self, count: int) -> None:
        """Wait until so many steps have begun."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.log) >= count, PATIENCE_S), f"{len(self.log)} steps"

    def begin(self, parts: Sequence[Part]) -> None:
        with self._changed:
            self.log.append([(str(part.sequence.entry.item.payload["text"]).split()[0], part.read) for part in parts])
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._free is None or self._free > 0, PATIENCE_S)
            if self._free is not None:
                self._free -= 1

    @property
    def caches(self) -> int:
        return sum(adapter.caches for adapter in self.adapters)


def generator(**options: Any) -> dict[str, Any]:
    """The load options of a generator whose steps cost as `COST` says."""
    return {"family": "fake_generator", "cost": COST, "max_length": 4096, **options}


def state(engine: Engine, name: str = "g") -> ModelState:
    """What the engine says of a model."""
    return next(found for found in engine.snapshot().models if found.model == name)


def texts(recorder: Recorder, work: Work) -> list[str]:
    """What the items of a work came to: their texts, or the code of their error."""
    return [o.fields["text"] if isinstance(o, Output) else o.code for o in recorder.results(work)[0].outcomes]


def settled(engine: Engine) -> bool:
    """Whether the session closes: no sequence, no lease, nothing lent."""
    if not engine.drain(PATIENCE_S):
        return False
    shot = engine.snapshot()
    return not shot.sequences and not shot.ledger.lent and not state(engine).leases
