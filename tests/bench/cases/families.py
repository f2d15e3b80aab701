"""Every family on the model of its contract: in batches, one item at a time, and by the model's own library."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from catalog.options import parse_options
from catalog.schema import Spec
from engine.adapters.base import Adapter
from engine.runner import use_threads
from engine.types import Output
from tests.adapters.case import Case, Payload
from tests.adapters.conftest import FAMILIES, batch, build, cases_of
from tests.bench.case import Found, Pace, Study, Unreliable
from tests.bench.figures import Reading, at_least
from tests.bench.packing import pack
from tests.bench.texts import WORDS, lengths
from tests.small import folder

THREADS = 1
"""Of all ways: more than one of them on a shared machine measure its strangers."""
BUDGET = 1024
MEDIA = 64
"""What an item with a picture, a sound or a document counts in the budget of a batch: 16 of them fill it."""
LARGER = {"gliner": "gliner_minilm", "cross_encoder": "minilm_reranker"}
"""Families whose contract has too small a model to tell what batches give."""
MUST_GAIN = ("causal_lm", "cross_encoder", "gliner")
NO_MODEL = ("fake", "fake_generator", "fake_parser")
BATCHES, ALONE, LIBRARY = "in batches", "one at a time", "the library"


@dataclass(frozen=True, slots=True)
class Size:
    """How much of a family is measured: items, seconds that they should take one at a time, turns over all ways.

    No turn begins after `patience_s`, so that a slow model has fewer of them.
    """

    least_items: int
    most_items: int
    seconds: float
    turns: int
    patience_s: float


QUICK, FULL = Size(4, 64, 0.4, 3, 3.0), Size(8, 256, 2.0, 5, 40.0)


def measure(pace: Pace, number: int) -> Found:
    """All families that can run here, one after the other. One that fails does not hide the others."""
    found = Found()
    for family in FAMILIES:
        needs = cases_of(family)[0].needs
        if family in NO_MODEL or (needs is not None and needs() is not None):
            continue
        print(f"bench: families, {family}", file=sys.stderr, flush=True)
        try:
            found.add(*measured(family, QUICK if pace.quick else FULL, number))
        except Exception as error:  # noqa: BLE001 - told beside what the other families gave
            found.failed.append(f"{family}: {type(error).__name__}: {error}")
        gc.collect()
    return found


def measured(family: str, size: Size, number: int) -> list[Reading]:
    """The readings of one family. Raises Unreliable where an item fails."""
    case = subject(family)
    adapter = build(case)
    adapter.load()
    try:
        use_threads(adapter, THREADS)
        rates, gains = _compared(case, adapter, size, number)
    finally:
        adapter.unload()
    random = " (random)" * adapter.spec.id.startswith("random/")
    gain = at_least(1.1, "batches must gain") if family in MUST_GAIN else None
    name = f"{family}{random}"
    return [
        *(Reading(f"{name}: {way}", rate, "items/s") for way, rate in rates.items()),
        *(
            Reading(f"{name}: batches over {way}", value, "times", gain if way == ALONE else None)
            for way, value in gains.items()
        ),
    ]


def subject(family: str) -> Case:
    """The first case of a family, on a larger model where the contract's own is too small."""
    case = cases_of(family)[0]
    name = LARGER.get(family)
    if name is None:
        return case
    spec = case.model()[0].model_copy(update={"id": f"random/{name}"})

    def model() -> tuple[Spec, Path | None]:
        return spec, folder(name)

    return replace(case, model=model)


def _compared(case: Case, adapter: Adapter, size: Size, number: int) -> tuple[dict[str, float], dict[str, float]]:
    """Items a second by each way, and how many times as quick batches are as each other way; medians over turns."""
    options = parse_options(adapter.spec, case.verb, adapter.spec.run, case.options)

    def run(items: Sequence[Payload]) -> None:
        outcomes = adapter.run(batch(case.verb, items, [options] * len(items)))
        for outcome in outcomes:
            if not isinstance(outcome, Output):
                raise Unreliable(f"an item failed: {outcome}")

    def alone(items: Sequence[Payload]) -> None:
        for item in items:
            run([item])

    def together(items: Sequence[Payload]) -> None:
        for chosen in split(items, adapter.most_items):
            run(chosen)

    ways: dict[str, Callable[[Sequence[Payload]], Any]] = {BATCHES: together, ALONE: alone}
    if case.reference is not None:
        ways[LIBRARY] = case.reference(adapter.folder, adapter.device)
    few = list(case.items())
    for way in ways.values():
        way(few)
    each = _seconds(alone, few) / len(few)
    count = max(len(few), size.least_items, min(size.most_items, round(size.seconds / each)))
    names = list(ways)
    spent: dict[str, list[float]] = {name: [] for name in names}
    began = time.monotonic()
    for turn in range(size.turns):
        if turn and time.monotonic() - began > size.patience_s:
            break
        items = varied(few, count, adapter.spec.max_length, turn)
        first = (number + turn) % len(names)
        for name in [*names[first:], *names[:first]]:
            spent[name].append(_seconds(ways[name], items))
    rates = {name: count / statistics.median(times) for name, times in spent.items()}
    gains = {
        name: statistics.median(other / own for other, own in zip(spent[name], spent[BATCHES], strict=True))
        for name in names[1:]
    }
    return rates, gains


def varied(items: Sequence[Payload], count: int, longest: int, turn: int) -> list[Payload]:
    """So many items: these again and again, each text with as many words more as the set of texts has tokens.

    At most a sixth of what the model reads, so that no text is cut. Each turn has other words, so that no library has
    seen its texts before; media other than text stay as they are.
    """
    found = []
    for place, (item, more) in enumerate(zip(islice(cycle(items), count), lengths(count), strict=True)):
        words = islice(cycle(WORDS), place + turn, place + turn + min(more, longest // 6))
        found.append({**item, "text": " ".join([item["text"], *words])} if "text" in item else dict(item))
    return found


def split(items: Sequence[Payload], most: int) -> list[list[Payload]]:
    """Items sorted by length in batches that fill the budget, of at most `most` items if that is not 0."""
    sizes = [len(item["text"]) // 4 + 2 if set(item) <= {"text", "query"} else MEDIA for item in items]
    whole = [[items[place] for place in places] for places in pack(sizes, BUDGET)]
    return [chosen[at : at + (most or len(chosen))] for chosen in whole for at in range(0, len(chosen), most or BUDGET)]


def _seconds(call: Callable[[Sequence[Payload]], Any], items: Sequence[Payload]) -> float:
    began = time.perf_counter()
    call(items)
    return time.perf_counter() - began


STUDY = Study(
    name="families",
    title="each family in process, items a second: in batches, one at a time, and by the model's own library",
    measure=measure,
    notes=(
        "random: a model of random weights, mostly tiny; it tells what a call costs beside the model, and no quality",
        f"mixed lengths; batches of similar ones, {BUDGET} tokens or {BUDGET // MEDIA} pictures, sounds or documents",
        "all ways compute in one thread, so that strangers on a shared machine do not decide",
        "the library: its own public call on all items, in its own batches where it makes any; loading not counted",
        "medians of turns in which each way has all items; a ratio is the median of the ratios of the turns",
    ),
    wide=True,
)
