"""One batch on one adapter: what came out checked, and what went wrong narrowed down to the items at fault.

When memory runs out: clear the device's cache, evict idle models one by one, split, and fail only what does not fit by
itself. Any other error is isolated by halving, so that a culprit among n costs about 2·log₂ n calls and its neighbours
get their results. Messages carry an error's name, never its text, which may quote the input.
"""

from __future__ import annotations

import logging
import math
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from engine.adapters.base import Adapter
from engine.errors import EngineError, ModelFailed, NotFinite, OutOfMemory, WrongCount
from engine.failures import device_lost, out_of_memory
from engine.types import Batch, Outcome, Output

log = logging.getLogger(__name__)

T = TypeVar("T")

_FLOATS = {"float32": "<f4", "float16": "<f2", "float64": "<f8"}


@dataclass(frozen=True, slots=True)
class Came:
    """What a batch came to: an outcome for each entry. `clean`: all in the first run, so that its time can teach."""

    outcomes: list[Outcome]
    clean: bool


def run_batch(
    adapter: Adapter, batch: Batch, *, clear: Callable[[], None], relieve: Callable[[], bool], items: int = 0
) -> Came:
    """One outcome per entry, in order, whatever the adapter does. Raises DeviceLost, and nothing else.

    `clear` gives cached memory back to the device; `relieve` evicts an idle model, False when there is none. `items` is
    how many entries there is room for at once, 0 for all of them.
    """
    if 0 < items < len(batch.entries):
        outcomes: list[Outcome] = []
        for first in range(0, len(batch.entries), items):
            part = replace(batch, entries=batch.entries[first : first + items], shares=())
            outcomes += run_batch(adapter, part, clear=clear, relieve=relieve).outcomes
        return Came(outcomes, clean=False)
    result = _run(adapter, batch)
    clean = not isinstance(result, EngineError)
    if isinstance(result, OutOfMemory):
        clear()
        result = _run(adapter, batch)
        while isinstance(result, OutOfMemory) and relieve():
            result = _run(adapter, batch)
    if isinstance(result, EngineError):
        result = _isolate(adapter, batch, result, clear)
    return Came(checked(result), clean)


def checked(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes, with NotFinite in place of those that hold NaN or infinity."""
    vectors = [
        value["values"]
        for outcome in outcomes
        if isinstance(outcome, Output)
        for value in outcome.fields.values()
        if isinstance(value, dict) and value.get("dtype") == "float32"
    ]
    # Nearly always all is well, and one look over all vectors of a batch is enough.
    if _finite({"dtype": "float32", "values": b"".join(vectors)}):
        others = [o for o in outcomes if isinstance(o, Output) and not _only_vectors(o)]
        if all(_finite(other.fields) for other in others):
            return list(outcomes)
    return [NotFinite() if isinstance(o, Output) and not _finite(o.fields) else o for o in outcomes]


def use_threads(adapter: Adapter, count: int) -> None:
    """Have the calls that follow from this thread compute with so many threads.

    Called before every batch: a part of torch's setting belongs to the thread, another to the process. torch is told
    once it is imported; a family over another runtime has a hook of its own.
    """
    setter = getattr(sys.modules.get("torch"), "set_num_threads", None)
    if setter is not None:
        setter(count)
    adapter.use_threads(count)


def attempt(call: Callable[[], Sequence[T]], count: int, model: str) -> list[T] | EngineError:
    """What a call for `count` items gave, or the error that all of them met. Raises DeviceLost."""
    try:
        found = list(call())
    # Not only Exception: panics of Rust libraries and exits are none.
    except BaseException as error:
        lost = device_lost(error)
        if lost is not None:
            raise lost from error
        # What is returned holds no traceback: its frames would keep the batch's tensors in memory.
        return of_item(error, model, count)
    if len(found) != count:
        return WrongCount(f"The model gave {len(found)} results for {count} items.")
    return found


def of_item(error: BaseException, model: str, count: int = 1) -> EngineError:
    """What an item gets to hear that meets this error by itself."""
    if out_of_memory(error):
        return OutOfMemory()
    if isinstance(error, EngineError):
        error.__traceback__ = error.__context__ = error.__cause__ = None
        return error
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown place"
    name = type(error).__name__
    log.warning("%s raised %s at %s in a batch of %d", model, name, where, count)
    return ModelFailed(f"The model raised {name} on this item.")


def _run(adapter: Adapter, batch: Batch) -> list[Outcome] | EngineError:
    return attempt(lambda: adapter.run(batch), len(batch.entries), batch.model)


def _isolate(adapter: Adapter, batch: Batch, failure: EngineError, clear: Callable[[], None]) -> list[Outcome]:
    """Outcomes of a batch that failed as a whole: halves are run until the items at fault are found."""
    entries = batch.entries
    if len(entries) == 1:
        return [failure]
    middle = len(entries) // 2
    outcomes: list[Outcome] = []
    for part in (entries[:middle], entries[middle:]):
        half = replace(batch, entries=part)
        if isinstance(failure, OutOfMemory):
            clear()
        result = _run(adapter, half)
        outcomes += _isolate(adapter, half, result, clear) if isinstance(result, EngineError) else result
    return outcomes


def _only_vectors(output: Output) -> bool:
    return all(isinstance(value, dict) and value.get("dtype") == "float32" for value in output.fields.values())


def _finite(value: Any) -> bool:
    """Whether no NaN or infinity is in an array, a packed vector, a number, or any of these inside maps and lists."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        dtype = _FLOATS.get(value.get("dtype", ""))
        data = value.get("values")
        if dtype is not None and isinstance(data, bytes):
            return bool(np.isfinite(np.frombuffer(data, dtype)).all())
        return all(_finite(part) for part in value.values())
    if isinstance(value, list | tuple):
        return all(_finite(part) for part in value)
    return True
