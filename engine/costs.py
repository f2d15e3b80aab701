"""What batches cost on this device: a prior at first, then what the batches that really ran have taught.

For each model there is a fit (`engine.fitting`) of each kind of pass, by the threads it computed with and by whether
others ran beside it, since lanes that share a CPU's memory slow one another down. What passes of a size take more or
less than fitted is a factor upon it, and which size is the quickest is learned beside it (`engine.sizing`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.cost import MOST_MS, UNIT_TOKENS, coefficients
from catalog.schema import CostCoefficients, Spec
from engine import fitting, sizing
from engine.fitting import Fit, Row
from engine.lessons import (
    Key,
    Known,
    Lessons,
    Pass,
    coefficients_of,
    dot,
    restored,
    row_of,
    scaled,
    state_of,
    thetas_of,
    with_threads,
)
from engine.sizing import LADDER, Factors

log = logging.getLogger(__name__)

__all__ = ["CostBook", "CostRecord", "Pass", "Ran"]


@dataclass(frozen=True, slots=True)
class Ran:
    """One pass that ran well. `lengths` are those of its items; `padded` says that each was padded to the longest.

    `threads` is how many it could compute with. `crowded` tells that other passes ran beside it. In a step the lengths
    are those of what each sequence has until now; where prompts are read in parts, those read by its end, and `begun`
    those read before.
    """

    model: str
    kind: Pass
    lengths: Sequence[int]
    padded: bool
    seconds: float
    threads: int = 1
    crowded: bool = False
    begun: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class CostRecord:
    """What is kept of one model across restarts: plain numbers, opaque to all but this module's author.

    `price` is what jobs are priced by: see `CostBook.price`.
    """

    model: str
    device: str
    state: dict[str, Any]
    price: CostCoefficients | None = None


FIRST_TOKENS = 1024
FIRST_TOKENS_ON_A_CARD = 16_384
"""The size of batch to begin with: see docs/benchmarks.md."""

CHEAP_MS = 10.0
"""A first batch is at least so large that it takes this; where that is beyond all sizes, none is looked for."""

SETTLED = 16
"""Passes after which a fit is good enough to compare sizes by."""

_CROWDED_FOR = 64
_TINY = 1e-6


class CostBook:
    """The costs of all models on one kind of device. Thread-safe; every method takes some microseconds.

    `device` is what the hardware is called, `lanes` how many passes may run on it side by side.
    """

    def __init__(
        self, device: str, records: Iterable[CostRecord] = (), *, lanes: int = 1, first_tokens: int = 0
    ) -> None:
        """`lanes` is how many passes run at once; zero `first_tokens` begin with the size that suits the device."""
        self._device = device
        self._first = first_tokens or (FIRST_TOKENS if device.startswith("cpu") else FIRST_TOKENS_ON_A_CARD)
        self._lanes = max(1, lanes)
        self._lock = threading.Lock()
        self._models: dict[str, Lessons] = {}
        self.teach(records)

    def teach(self, records: Iterable[CostRecord]) -> None:
        """Take over what was kept of models of which less is known here. What cannot be read is left out."""
        for record in records:
            if record.device != self._device:
                continue
            try:
                model = restored(record.state)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, IndexError):
                log.warning("what was learned of %s on %s cannot be read and is left out", record.model, record.device)
                continue
            with self._lock:
                there = self._models.get(record.model)
                if there is None or there.seen < model.seen:
                    self._models[record.model] = model

    def coefficients(self, model: str, spec: Spec, kind: Pass = Pass.RUN, threads: int = 1) -> CostCoefficients:
        """The coefficients to plan with: the prior until batches have run, then the fit, at the size in use.

        A step takes `base + Σ item(length, 1)`.
        """
        with self._lock:
            there = self._models.get(model)
            best = there.best(kind, threads) if there is not None else None
            return best[1].found if best else self._guess(there, spec, kind, threads)

    def predict(
        self,
        model: str,
        spec: Spec,
        lengths: Sequence[int],
        *,
        kind: Pass = Pass.RUN,
        padded: bool = True,
        threads: int = 1,
    ) -> float:
        """Milliseconds of a pass over items of these lengths, with what its size adds or takes."""
        row = row_of(kind, lengths, padded)
        with self._lock:
            there = self._models.get(model)
            best = there.best(kind, threads) if there is not None else None
            if best is None:
                return dot(thetas_of(self._guess(there, spec, kind, threads), kind), row)
            return min(best[1].fit.predict(row) * best[1].factors.of(row[1]), MOST_MS)

    def batch_tokens(self, model: str, least: int, most: int) -> int | None:
        """The size of batch, in padded tokens, that has proved the quickest for each token; None while unknown.

        Now and then it is a neighbour of that, to be compared with it. None as well for a model so cheap that its
        batches need no bound.
        """
        with self._lock:
            there = self._models.get(model)
            if there is None or there.size is None:
                return None
            best = there.best(Pass.RUN)
            if best is None or self._first_tokens(best[1].found, 1) is None:
                return None
            return min(max(there.size.tokens, least), most)

    def price(self, model: str) -> CostCoefficients | None:
        """What jobs of the model are priced by: device-milliseconds under load. None if unknown.

        A job shares its batch with others, so it pays for its tokens' part of what any pass takes, however small: by
        the usual size of passes, which is large under load and that of one job where nothing else comes.

        Under load passes run side by side, each slower than it would be alone, and the device does as many at once as
        it has lanes: so a crowded pass counts for its share of the device, and any other one for all of it. For a model
        that generates, a new token costs its share of the usual step.
        """
        with self._lock:
            there = self._models.get(model)
            return None if there is None else self._price(there)

    def observe(self, ran: Ran, spec: Spec) -> None:
        """Learn from a pass that ran."""
        if not ran.lengths or not ran.seconds > 0:
            return
        ms, row = ran.seconds * 1000, row_of(ran.kind, ran.lengths, ran.padded, ran.begun)
        key = Key(ran.kind, ran.threads, ran.crowded)
        with self._lock:
            there = self._models.setdefault(ran.model, Lessons())
            known = there.known.get(key) or self._beginning(there, spec, key)
            fit, factors = known.fit, known.factors
            if fit.seen >= SETTLED and ran.kind is Pass.RUN:
                factors = factors.learn(row[1], ms / fit.predict(row))
                self._size(there, fit, row, ms, ran, UNIT_TOKENS[spec.unit])
            there.known[key] = there.at_size(key, fit.learn(row, ms), factors)
            there.changed = True

    def changed(self) -> list[CostRecord]:
        """The records that have changed since the last call."""
        records = []
        with self._lock:
            for name, model in self._models.items():
                if model.changed:
                    model.changed = False
                    records.append(CostRecord(name, self._device, state_of(model), self._price(model)))
        return records

    def _first_tokens(self, found: CostCoefficients, each: int) -> int | None:
        """The size of batch to begin with, in units of `each` tokens; None where no size matters, so cheap is it."""
        cheap = CHEAP_MS / max(found.per_token, _TINY)
        return None if cheap > LADDER[-1] else max(1, self._first // each, int(cheap))

    def _size(self, there: Lessons, fit: Fit, row: Row, ms: float, ran: Ran, each: int) -> None:
        """Compare the pass with others by its size, if it ran under the same circumstances."""
        crowded = ran.crowded
        there.crowds = _CROWDED_FOR if crowded else max(0, there.crowds - 1)
        if there.crowds and not crowded:
            return
        if there.size is None:
            first = self._first_tokens(coefficients_of(fit.coefficients, Pass.RUN, 1.0), each)
            if first is None:
                return
            there.size = sizing.sizing(first)
        # The items' own part: what a unit of work is must not depend on the size of its batch.
        work = (fit.coefficients[1] + _TINY) * row[1] + fit.coefficients[2] * row[2]
        there.size = there.size.learn(row[1], ms / work, max(ran.lengths))

    def _beginning(self, there: Lessons, spec: Spec, key: Key) -> Known:
        """A fit of which nothing has run: the guess, worth a few passes."""
        guess = self._guess(there, spec, key.kind, key.threads)
        lengths = [max(1, min(spec.max_length, 512) // part) for part in (16, 4, 1)]
        rows = [row_of(key.kind, [length] * count, True) for length, count in zip(lengths, (8, 4, 1), strict=True)]
        return Known(fitting.prior(thetas_of(guess, key.kind), rows), Factors(), guess)

    def _guess(self, there: Lessons | None, spec: Spec, kind: Pass, threads: int) -> CostCoefficients:
        """The coefficients of passes that have never run: from those with other threads, else the prior."""
        other = None if there is None else there.best(kind)
        if other is not None:
            key, known = other
            return with_threads(known.found, key.threads / threads)
        guess = coefficients(spec, self._device)
        if kind is Pass.STEP:
            # All weights are read once for a step, whatever the number of its sequences.
            guess = CostCoefficients(
                base=guess.base + guess.per_new, per_token=guess.per_square, per_new=guess.per_token
            )
        # What a spec says of itself holds for the threads that it has.
        return guess if spec.cost is not None else with_threads(guess, 1 / threads)

    def _price(self, there: Lessons) -> CostCoefficients | None:
        run = self._share(there, Pass.RUN)
        if run is not None:
            return _spread(*run)
        read, step = self._share(there, Pass.READ), self._share(there, Pass.STEP)
        if read is None or step is None:
            return None if read is None else read[0]
        typical = step[1].fit.typical
        whole = step[0].base + step[0].per_new * typical[1] + step[0].per_token * typical[2]
        return read[0].model_copy(update={"per_new": whole / max(1.0, typical[1])})

    def _share(self, there: Lessons, kind: Pass) -> tuple[CostCoefficients, Known] | None:
        """What passes of a kind take of the device, crowded ones first."""
        fits = [(key, known) for key, known in there.known.items() if key.kind is kind]
        crowded = [(key, known) for key, known in fits if key.crowded and known.fit.seen >= SETTLED]
        best = max(crowded or fits, key=lambda one: one[1].fit.seen, default=None)
        if best is None:
            return None
        key, known = best
        return scaled(known.found, 1 / self._lanes if key.crowded else 1.0), known


def _spread(found: CostCoefficients, known: Known) -> CostCoefficients:
    """The coefficients with the base of a usual pass spread over its tokens."""
    each = found.base / max(1.0, known.fit.typical[1])
    return found.model_copy(update={"base": 0.0, "per_token": found.per_token + each})
