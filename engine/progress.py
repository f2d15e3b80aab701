"""How far a work has come: its outcomes so far, and where its seconds went."""

from __future__ import annotations

from engine.errors import EngineError
from engine.types import Finished, Outcome, Spent, Work


class Progress:
    """One work between `submit` and its end. Guarded by the engine's lock."""

    __slots__ = ("_device_ms", "_intervals", "_loading", "_outcomes", "left", "work")

    def __init__(self, work: Work, loading: float) -> None:
        """`loading` is for how long loads of the work's model had run when it came."""
        self.work = work
        self.left = len(work.items)
        self._loading = loading
        self._outcomes: dict[int, Outcome] = {}
        self._intervals: list[tuple[float, float]] = []
        self._device_ms = 0.0

    def ran(self, began: float, ended: float, share: float) -> None:
        """A batch ran in which this work had so large a `share` of the items."""
        self._intervals.append((began, ended))
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
        device = min(stay, _covered(self._intervals))
        load = min(stay - device, max(0.0, loading - self._loading))
        spent = Spent(load=load, wait=stay - device - load, device=device)
        return Finished(self.work, outcomes, spent, self._device_ms, now)


def _covered(intervals: list[tuple[float, float]]) -> float:
    """The length of the union: batches of one work may run side by side."""
    if len(intervals) == 1:
        return intervals[0][1] - intervals[0][0]
    total, until = 0.0, float("-inf")
    for began, ended in sorted(intervals):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total
