"""What is known of the cost of one model: fits, factors upon them, the size in use; and all that as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from catalog.schema import MOST_COEFFICIENT, CostCoefficients
from engine import fitting, sizing
from engine.fitting import Fit, Row
from engine.sizing import LADDER, Factors, Sizing

SPEEDUP = 0.7
"""N threads are N to this power as fast as one: two lanes of one thread beat one of two by a fifth to a quarter."""

_VERSION = 2


class Pass(StrEnum):
    """What a pass over the device does. Each has a cost of its own."""

    RUN = "run"
    READ = "read"
    """Reading a prompt, or a part of one, before anything is generated."""
    STEP = "step"
    """One new token of each of some sequences."""


@dataclass(frozen=True, slots=True)
class Key:
    """Which passes a fit is of."""

    kind: Pass
    threads: int
    crowded: bool


@dataclass(frozen=True, slots=True)
class Known:
    """A fit with the factors of sizes upon it, and the coefficients that both give at the size in use."""

    fit: Fit
    factors: Factors
    found: CostCoefficients


class Lessons:
    """What is known of one model. For `crowds` passes to come only crowded ones tell of sizes."""

    __slots__ = ("changed", "crowds", "known", "size")

    def __init__(self) -> None:
        self.known: dict[Key, Known] = {}
        self.size: Sizing | None = None
        self.crowds = 0
        self.changed = False

    @property
    def seen(self) -> int:
        """How many passes have taught it."""
        return sum(known.fit.seen for known in self.known.values())

    def at_size(self, key: Key, fit: Fit, factors: Factors) -> Known:
        """The fit with its coefficients at the size in use, or the usual one while none is preferred."""
        at = fit.typical[1] if self.size is None else LADDER[self.size.size]
        return Known(fit, factors, coefficients_of(fit.coefficients, key.kind, factors.of(at)))

    def best(self, kind: Pass, threads: int | None = None) -> tuple[Key, Known] | None:
        """What most passes have taught, of this kind and with so many threads."""
        fits = [
            (key, known)
            for key, known in self.known.items()
            if key.kind is kind and (threads is None or key.threads == threads)
        ]
        return max(fits, key=lambda one: one[1].fit.seen, default=None)


def row_of(kind: Pass, lengths: Sequence[int], padded: bool, begun: Sequence[int] = ()) -> Row:
    """What the coefficients of a pass are multiplied with.

    Tokens and the sum of their squares, less what was `begun` before; for a step, sequences and what they hold.
    """
    if kind is Pass.STEP:
        return (1.0, float(len(lengths)), float(sum(lengths)))
    if padded:
        longest = max(lengths, default=0)
        return (1.0, float(len(lengths) * longest), float(len(lengths) * longest * longest))
    squares = sum(length * length for length in lengths) - sum(length * length for length in begun)
    return (1.0, float(sum(lengths) - sum(begun)), float(squares))


def thetas_of(found: CostCoefficients, kind: Pass) -> Row:
    """The unknowns of a fit, by the row of its kind of pass."""
    if kind is Pass.STEP:
        return (found.base, found.per_new, found.per_token)
    return (found.base, found.per_token, found.per_square)


def coefficients_of(thetas: Row, kind: Pass, factor: float) -> CostCoefficients:
    """The coefficients of a fit, each times the factor."""
    base, first, second = (min(factor * one, MOST_COEFFICIENT) for one in thetas)
    if kind is Pass.STEP:
        return CostCoefficients(base=base, per_token=second, per_new=first)
    return CostCoefficients(base=base, per_token=first, per_square=second)


def scaled(found: CostCoefficients, factor: float) -> CostCoefficients:
    """The coefficients of what takes so many times as long."""
    base, per_token, per_square, per_new = (
        min(one * factor, MOST_COEFFICIENT) for one in (found.base, found.per_token, found.per_square, found.per_new)
    )
    return CostCoefficients(base=base, per_token=per_token, per_square=per_square, per_new=per_new)


def with_threads(found: CostCoefficients, fewer: float) -> CostCoefficients:
    """The coefficients with `fewer` times fewer threads. What a pass takes whatever its size is done by one of them."""
    return scaled(found, fewer**SPEEDUP).model_copy(update={"base": found.base})


def dot(thetas: Row, row: Row) -> float:
    """Milliseconds of a pass."""
    return thetas[0] * row[0] + thetas[1] * row[1] + thetas[2] * row[2]


def state_of(model: Lessons) -> dict[str, Any]:
    """What is kept of a model."""
    return {
        "version": _VERSION,
        "fits": [
            [key.kind.value, key.threads, key.crowded, known.fit.state(), known.factors.state()]
            for key, known in model.known.items()
        ],
        "size": None if model.size is None else model.size.state(),
    }


def restored(state: Mapping[str, Any]) -> Lessons:
    """What was kept of a model. Raises ValueError, TypeError, KeyError or AttributeError for what is none of ours."""
    if state["version"] != _VERSION:
        raise ValueError("a state of another version")
    model = Lessons()
    model.size = None if state["size"] is None else sizing.restored(state["size"])
    for kind, threads, crowded, fit, factors in state["fits"]:
        key = Key(Pass(kind), int(threads), bool(crowded))
        kept, upon = fitting.restored(fit), sizing.restored_factors(factors)
        model.known[key] = model.at_size(key, kept, upon)
    return model
