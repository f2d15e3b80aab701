"""What the two lanes owe each other: shares of the device, and small bulk batches while interactive work comes. Pure.

A running batch is not interrupted, so interactive work waits for as long as the bulk batch before it was allowed to
take. While such work has been seen lately, a bulk batch may take no longer than the interactive lane's own batches do;
afterwards no more than a small part of the time for which none has come, so that who calls now and then waits little,
and a backfill at night has the size of batch that is best for it.
"""

from __future__ import annotations

import math

from engine.batcher import Bounds

_BATCHES = 16
"""Interactive batches over which their time is averaged."""

_LEAST_USE = 0.5
"""So much of a small batch's time is its items' own, whatever interactive work takes: less would be a waste."""


_QUIET_SHARE = 0.05
"""What part of the time without interactive work one bulk batch may take."""


class Share:
    """A part of the device owed to somebody: earned while others run, due once it covers a cost, spent by running."""

    def __init__(self, part: float) -> None:
        self._part = part
        self._credit = 0.0

    def earn(self, cost: float) -> None:
        """Others had so many milliseconds."""
        self._credit += cost * self._part

    def spend(self, cost: float) -> None:
        """It was taken from others."""
        self._credit -= cost

    def had(self, cost: float, ahead: float) -> None:
        """It was had without taking anything from others: that counts, too, but for no more than `ahead`."""
        self._credit = max(self._credit - cost, min(self._credit, -ahead))

    def due(self, cost: float) -> bool:
        """Whether so much is owed."""
        return self._credit >= cost

    @property
    def owed(self) -> bool:
        """Whether anything is owed."""
        return self._credit > 0


class Courtesy:
    """How small bulk batches are. Times are seconds on the clock that is passed in, costs predicted milliseconds."""

    def __init__(self, heed_s: float) -> None:
        """For `heed_s` after interactive work was seen more of it is expected."""
        self._heed_s = heed_s
        self._seen = -math.inf
        self._batch_ms = 0.0
        self._batches = 0

    def saw(self, now: float) -> None:
        """Interactive work has come, or waits and could run."""
        self._seen = max(self._seen, now)

    def ran(self, ms: float) -> None:
        """An interactive batch or step of so many milliseconds begins."""
        self._batches = min(self._batches + 1, _BATCHES)
        self._batch_ms += (ms - self._batch_ms) / self._batches

    def expects(self, now: float) -> bool:
        """Whether interactive work may come any moment."""
        return now - self._seen <= self._heed_s

    def until(self, now: float) -> float | None:
        """Until when it may come if none does; None if it is not expected."""
        return self._seen + self._heed_s if self.expects(now) else None

    def most_ms(self, own_ms: float, now: float) -> float:
        """How long a bulk batch may take of which `own_ms` are spent whatever is in it."""
        least = max(self._batch_ms, own_ms / (1 - _LEAST_USE))
        return least if self.expects(now) else max(least, (now - self._seen) * 1000 * _QUIET_SHARE)

    def bounds(self, bounds: Bounds, length: int, now: float) -> Bounds:
        """The bounds of a bulk batch around an item of this length."""
        most_ms = self.most_ms(bounds.cost.base + bounds.overhead_ms, now)
        return bounds if math.isinf(most_ms) else bounds.within(most_ms, length)
