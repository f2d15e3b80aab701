"""How far a work has come: its outcomes so far, and where its seconds went.

Passes of one work may run side by side: time with any of them running is counted once, however many there are.
"""

from __future__ import annotations

from engine.errors import EngineError
from engine.types import Finished, Outcome, Spent, Work


class Progress:
    """One work between `submit` and its end. Guarded by the engine's lock."""

    __slots__ = ("_covered", "_device_ms", "_loading", "_open", "_outcomes", "_since", "left", "started", "work")

    def __init__(self, work: Work, loading: float) -> None:
        """`loading` is for how long loads of the work's model had run when it came."""
        self.work = work
        self.left = len(work.items)
        self.started = False
        self._loading = loading
        self._outcomes: dict[int, Outcome] = {}
        self._open = 0
        self._since = 0.0
        self._covered = 0.0
        self._device_ms = 0.0

    def began(self, now: float) -> None:
        """A pass with items of this work begins; others of it may run already."""
        self.started = True
        if not self._open:
            self._since = now
        self._open += 1

    def ran(self, began: float, ended: float, share: float) -> None:
        """A pass that began then has ended now; this work had so large a `share` of it."""
        self._open -= 1
        if not self._open:
            self._covered += ended - self._since
        self._device_ms += (ended - began) * 1000.0 * share

    def put(self, index: int, outcome: Outcome) -> None:
        """The outcome of the item with this index."""
        self._outcomes[index] = outcome
        self.left -= 1

    def finished(self, now: float, loading: float) -> Finished:
        """The complete work. `loading` as in the constructor, but now."""
        return self._end(tuple([self._outcomes[item.index] for item in self.work.items]), now, loading)

    def failed(self, error: EngineError, now: float, loading: float) -> Finished:
        """The work given up: every item has this error, whatever it came to."""
        return self._end((error,) * len(self.work.items), now, loading)

    def _end(self, outcomes: tuple[Outcome, ...], now: float, loading: float) -> Finished:
        stay = max(0.0, now - self.work.arrived)
        covered = self._covered + (now - self._since if self._open else 0.0)
        device = min(stay, covered)
        load = min(stay - device, max(0.0, loading - self._loading))
        spent = Spent(load=load, wait=stay - device - load, device=device)
        return Finished(self.work, outcomes, spent, self._device_ms, now)
