"""A listener that keeps what it is told and lets a test wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.errors import EngineError
from engine.types import Batch, Entry, Finished, Piece, Work

PATIENCE_S = 10.0
"""How long a test waits for what must happen; far more than it takes."""


class Recorder:
    """What the engine said, in order."""

    patience_s = PATIENCE_S

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.calls: list[list[Finished]] = []
        self.started: list[Batch] = []
        self.ended: list[Batch] = []
        self.outcomes = 0
        self.pieces: list[list[Piece]] = []
        self.loading: list[str] = []
        self.loaded: list[str] = []
        self.limits: list[float] = []
        self.lost: list[EngineError] = []
        self.there: list[Mapping[str, float]] = []

    @property
    def done(self) -> dict[str, Finished]:
        """Finished works by id."""
        return {one.work.id: one for call in self.calls for one in call}

    def _note(self, into: list[Any], value: Any) -> None:
        with self.changed:
            into.append(value)
            self.changed.notify_all()

    def batch_started(self, batch: Batch, limit_s: float) -> None:
        self.limits.append(limit_s)
        self._note(self.started, batch)

    def batch_ended(self, batch: Batch, ended: Sequence[Entry]) -> None:
        self.outcomes += len(ended)
        self._note(self.ended, batch)

    def said(self, pieces: Sequence[Piece]) -> None:
        self._note(self.pieces, list(pieces))

    def load_started(self, model: str, limit_s: float) -> None:
        self.limits.append(limit_s)
        self._note(self.loading, model)

    def load_ended(self, model: str) -> None:
        self._note(self.loaded, model)

    def finished(self, done: Sequence[Finished]) -> None:
        self._note(self.calls, list(done))

    def residents(self, models: Mapping[str, float]) -> None:
        self._note(self.there, dict(models))

    def device_lost(self, error: EngineError) -> None:
        self._note(self.lost, error)

    def until(self, happened: Callable[[], bool]) -> None:
        """Wait for a condition on what was told; fail the test if it never comes."""
        with self.changed:
            assert self.changed.wait_for(happened, self.patience_s), "what the test waits for did not happen"

    def results(self, *works: Work) -> list[Finished]:
        """These works finished, waiting for them."""
        self.until(lambda: all(work.id in self.done for work in works))
        return [self.done[work.id] for work in works]
