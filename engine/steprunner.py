"""One step of a generating model: what came out, and what went wrong narrowed down to the sequences at fault.

When memory runs out: clear the device's cache, evict idle models one by one, step fewer sequences at once, read less of
a prompt at once, and fail only what does not fit by itself. Any other error is isolated by halving.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.adapters.base import Part, StepAdapter
from engine.errors import EngineError, OutOfMemory
from engine.runner import attempt, checked
from engine.types import Outcome


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step came to: for each part its outcome, or None if its sequence goes on.

    `clean`: all in one call, the first. `fitted` is how many sequences and tokens went in one call where memory did not
    last for all of them; None where it did.
    """

    outcomes: list[Outcome | None]
    clean: bool
    fitted: tuple[int, int] | None = None


class _Fit:
    """The most sequences and the most tokens that went in one call."""

    def __init__(self) -> None:
        self.sequences = 0
        self.tokens = 0

    def note(self, parts: Sequence[Part]) -> None:
        self.sequences = max(self.sequences, len(parts))
        self.tokens = max(self.tokens, sum(max(part.read, 1) for part in parts))


def run_step(
    adapter: StepAdapter, parts: Sequence[Part], *, clear: Callable[[], None], relieve: Callable[[], bool]
) -> Stepped:
    """An outcome or None per part, in order, whatever the adapter does. Raises DeviceLost, and nothing else.

    `clear` and `relieve` as for `run_batch`.
    """
    result = _step(adapter, parts)
    clean, fitted = not isinstance(result, EngineError), None
    if isinstance(result, OutOfMemory):
        clear()
        result = _step(adapter, parts)
        while isinstance(result, OutOfMemory) and relieve():
            result = _step(adapter, parts)
    if isinstance(result, EngineError):
        short = isinstance(result, OutOfMemory)
        fit = _Fit()
        result = _isolate(adapter, parts, result, clear, fit)
        fitted = (fit.sequences, fit.tokens) if short else None
    ended = iter(checked([outcome for outcome in result if outcome is not None]))
    return Stepped([None if outcome is None else next(ended) for outcome in result], clean, fitted)


def _step(adapter: StepAdapter, parts: Sequence[Part]) -> list[Outcome | None] | EngineError:
    # A call that failed may have read a part of it all the same.
    due = [Part(part.sequence, min(part.read, part.sequence.unread)) for part in parts]
    return attempt(lambda: adapter.step(due), len(parts), adapter.spec.id)


def _isolate(
    adapter: StepAdapter, parts: Sequence[Part], failure: EngineError, clear: Callable[[], None], fit: _Fit
) -> list[Outcome | None]:
    """A step that failed as a whole, in halves, until the sequences at fault are found."""
    short = isinstance(failure, OutOfMemory)
    if len(parts) == 1:
        if not short or parts[0].read <= 1:
            return [failure]
        halves = [[Part(parts[0].sequence, parts[0].read // 2)]]
    else:
        middle = len(parts) // 2
        halves = [list(parts[:middle]), list(parts[middle:])]
    outcomes: list[Outcome | None] = []
    for half in halves:
        if short:
            clear()
        result = _step(adapter, half)
        if isinstance(result, EngineError):
            outcomes += _isolate(adapter, half, result, clear, fit)
        else:
            fit.note(half)
            outcomes += result
    return outcomes
