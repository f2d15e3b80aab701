"""Fitting what a pass costs, online: `a + b·x + c·z` milliseconds, with a, b and c never negative. Pure.

Least squares on the relative error, recursive, with exponential forgetting (Ljung, "System Identification", 2nd ed.,
1999, §11.2): nothing is kept of a pass but its part in the sums of the normal equations. Three things are added, since
machines stall and change.

* The error is relative to the prediction, but to the actual time where that is much longer (`TOLERANCE`): a pass that
  took ten times as long has a small part in the sums, and one that seems to have taken no time at all can pull no
  harder than any other.
* Several surprises in a row on one side are no stall but a change: then all that was learned is taken to hold at the
  new speed, and most of it is forgotten.
* What the passes do not tell apart stays as it was: the solution is drawn to the present coefficients, in proportion to
  what each contributes. It is the damping of Levenberg and Marquardt at each step, so it fades where there is evidence.

The three unknowns are found by trying the active sets (Lawson and Hanson, "Solving Least Squares Problems", 1974, ch.
23, whose search is not needed for three).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

Row = tuple[float, float, float]
"""What the coefficients are multiplied with: 1, and two sizes of a pass."""

MEMORY = 128
"""Passes after which one has lost most of its weight."""

TOLERANCE = 1.5
"""A pass this many times slower or quicker than predicted is a surprise."""

SURPRISES = 5
"""So many surprises in a row are a change."""

_EARLY = 8
"""Passes until which little is known but a guess."""

KEPT = 0.25
"""What is left of the sums after a change."""

_EAGER, _EVERY = 64, 8
"""The coefficients are solved for after each pass at first, and after every eighth later: it is most of the work."""

_DAMPING = 0.002
_LEAST_SHARE = 0.05
_SPREAD_MEMORY = 32
_WIDEST = math.log(4)
_MS = (1e-4, 1e9)
_LARGEST = 1e18
_BEYOND = 1e60
_SUBSETS = [subset for size in (2, 1) for subset in combinations(range(3), size)]


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients with what they were learned from.

    `moments` is the upper triangle of the normal equations, by rows, and `cross` their right side; `weight` is how many
    passes are in them. `spread` is the usual size of the logarithm of actual over predicted. `surprises` are the last
    passes, if all of them were slower than could be expected, or all of them quicker: they are in no sum yet. `typical`
    is the mean of recent rows, `seen` counts all passes in the sums.
    """

    coefficients: Row
    moments: tuple[float, ...]
    cross: Row
    weight: float
    spread: float = 0.1
    typical: Row = (1.0, 0.0, 0.0)
    seen: int = 0
    surprises: tuple[tuple[Row, float], ...] = ()

    def predict(self, row: Row) -> float:
        """Milliseconds of a pass."""
        return max(_MS[0], _dot(self.coefficients, row))

    def learn(self, row: Row, ms: float) -> Fit:
        """The fit after one more pass. What cannot be (no time, no size, infinity) teaches nothing."""
        if not (math.isfinite(ms) and ms > 0 and all(0 <= x <= _LARGEST for x in row)):
            return self
        ms = min(max(ms, _MS[0]), _MS[1])
        surprise = self._surprise(row, ms)
        if abs(surprise) <= self._band:
            return self._all([*self.surprises, (row, ms)])
        same = all(self._surprise(*one) * surprise > 0 for one in self.surprises)
        fit = self if same else self._all(self.surprises)
        surprises = (*fit.surprises, (row, ms))
        if len(surprises) < fit._enough(surprise):
            return replace(fit, surprises=surprises)
        mean = sum(fit._surprise(*one) for one in surprises) / len(surprises)
        return fit._at_speed(math.exp(mean))._all(surprises)

    def _enough(self, surprise: float) -> int:
        """How many surprises in a row are a change. A guess is given up sooner than what was learned.

        A pass can be slow for many reasons, the first one above all, but not quick.
        """
        if self.seen >= _EARLY:
            return SURPRISES
        return 1 if surprise < 0 else 2

    @property
    def _band(self) -> float:
        """From where on a pass is a surprise: further out where passes differ much."""
        return min(max(math.log(TOLERANCE), 3 * self.spread), _WIDEST)

    def _surprise(self, row: Row, ms: float) -> float:
        return math.log(ms / self.predict(row))

    def _all(self, passes: Iterable[tuple[Row, float]]) -> Fit:
        """The fit after these passes, with no surprise left."""
        fit = replace(self, surprises=())
        for row, ms in passes:
            fit = fit._with(row, ms)
        return fit

    def _with(self, row: Row, ms: float) -> Fit:
        """The fit with one more pass in its sums."""
        predicted = self.predict(row)
        distance = min(abs(math.log(ms / predicted)), self._band)
        scale = max(predicted, ms / TOLERANCE)
        kept = 1 - 1 / MEMORY
        one = (row[0] / scale, row[1] / scale, row[2] / scale)
        target = ms / scale
        a, b, c, d, e, f = self.moments
        learned = replace(
            self,
            moments=(
                kept * a + one[0] * one[0],
                kept * b + one[0] * one[1],
                kept * c + one[0] * one[2],
                kept * d + one[1] * one[1],
                kept * e + one[1] * one[2],
                kept * f + one[2] * one[2],
            ),
            cross=(
                kept * self.cross[0] + one[0] * target,
                kept * self.cross[1] + one[1] * target,
                kept * self.cross[2] + one[2] * target,
            ),
            weight=kept * self.weight + 1,
            spread=self.spread + (distance - self.spread) / _SPREAD_MEMORY,
            typical=_toward(self.typical, row, 1 / min(self.seen + 1, _SPREAD_MEMORY)),
            seen=self.seen + 1,
        )
        if learned.seen > _EAGER and learned.seen % _EVERY:
            return learned
        found = _solve(learned)
        return self if found is None else replace(learned, coefficients=found)

    def _at_speed(self, factor: float) -> Fit:
        """The fit as if all passes had taken `factor` times as long, and with little weight."""
        factor = min(max(factor, _MS[0]), _MS[1])
        return replace(
            self,
            coefficients=_row([factor * one for one in self.coefficients]),
            moments=tuple(KEPT * one / factor**2 for one in self.moments),
            cross=_row([KEPT * one / factor for one in self.cross]),
            weight=KEPT * self.weight,
        )

    def state(self) -> list[float]:
        """The fit as plain numbers, but for the last surprises."""
        return [*self.coefficients, *self.moments, *self.cross, self.weight, self.spread, *self.typical, self.seen]


def prior(coefficients: Row, rows: Iterable[Row]) -> Fit:
    """A fit to begin with: as if passes of these rows had taken just what the coefficients say."""
    fit = Fit(coefficients, (0.0,) * 6, (0.0,) * 3, 0.0)
    for row in rows:
        fit = fit.learn(row, fit.predict(row))
    return replace(fit, coefficients=coefficients, seen=0)


def restored(state: Sequence[float]) -> Fit:
    """The fit of a state. Raises ValueError for numbers that are none."""
    numbers = [float(number) for number in state]
    if len(numbers) != 18 or not all(map(math.isfinite, numbers)) or min(numbers[:13]) < 0:
        raise ValueError("no state of a fit")
    if max(numbers[:13]) > _BEYOND:
        raise ValueError("no state of a fit: no pass takes that long")
    return Fit(
        coefficients=_row(numbers[0:3]),
        moments=tuple(numbers[3:9]),
        cross=_row(numbers[9:12]),
        weight=numbers[12],
        spread=numbers[13],
        typical=_row(numbers[14:17]),
        seen=int(numbers[17]),
    )


def least_squares(moments: Sequence[Sequence[float]], cross: Sequence[float]) -> Row | None:
    """The non-negative θ with the least θᵀMθ - 2vᵀθ, for a positive definite 3 by 3 M; None if it is not so."""
    found = _solved(moments, cross, (0, 1, 2))
    if found is not None and min(found) >= 0:
        return found
    best: Row | None = None
    least = math.inf
    for subset in _SUBSETS:
        found = _solved(moments, cross, subset)
        if found is None or min(found) < 0:
            continue
        # At a stationary point the objective is -vᵀθ.
        objective = -_dot(_row(cross), found)
        if objective < least:
            best, least = found, objective
    return best


def _solve(fit: Fit) -> Row | None:
    """The coefficients of the sums, drawn to those that were; in units in which every column has length 1."""
    a, b, c, d, e, f = fit.moments
    lengths = [math.sqrt(a), math.sqrt(d), math.sqrt(f)]
    if lengths[0] <= 0:
        return None
    inverse = [1 / length if length > 0 else 0.0 for length in lengths]
    rows = ((a, b, c), (b, d, e), (c, e, f))
    moments = [[rows[i][j] * inverse[i] * inverse[j] for j in range(3)] for i in range(3)]
    cross = [fit.cross[i] * inverse[i] for i in range(3)]
    root = math.sqrt(fit.weight)
    for i in range(3):
        now = fit.coefficients[i] * lengths[i]
        share = min(1.0, max(now / root, _LEAST_SHARE))
        damping = _DAMPING / share**2 if lengths[i] > 0 else 1.0
        moments[i][i] += damping
        cross[i] += damping * now
    found = least_squares(moments, cross)
    if found is None:
        return None
    result = [found[i] * inverse[i] if lengths[i] > 0 else fit.coefficients[i] for i in range(3)]
    return _row(result) if all(map(math.isfinite, result)) else None


def _solved(moments: Sequence[Sequence[float]], cross: Sequence[float], subset: Sequence[int]) -> Row | None:
    """The solution with all but these unknowns at zero, by elimination; None where there is none."""
    rows = [[moments[i][j] for j in subset] + [cross[i]] for i in subset]
    size = len(rows)
    for i in range(size):
        pivot = rows[i][i]
        if not pivot > 0:
            return None
        for k in range(i + 1, size):
            factor = rows[k][i] / pivot
            for j in range(i, size + 1):
                rows[k][j] -= factor * rows[i][j]
    found = [0.0, 0.0, 0.0]
    for i in reversed(range(size)):
        rest = sum(rows[i][j] * found[subset[j]] for j in range(i + 1, size))
        found[subset[i]] = (rows[i][size] - rest) / rows[i][i]
    return _row(found)


def _toward(mean: Row, row: Row, share: float) -> Row:
    return _row([m + share * (x - m) for m, x in zip(mean, row, strict=True)])


def _dot(one: Row, other: Row) -> float:
    return one[0] * other[0] + one[1] * other[1] + one[2] * other[2]


def _row(numbers: Sequence[float]) -> Row:
    return (numbers[0], numbers[1], numbers[2])
