"""One real model in each way that a CPU can run it: runtimes, padding, sizes of batch; in turns, all cores busy."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.loader import Catalog
from catalog.options import EncodeOptions
from catalog.schema import Spec
from catalog.terms import Lane, Verb
from catalog.weights import locate
from engine.adapters.base import Adapter
from engine.device import CpuDevice
from engine.loader import build_adapter
from engine.runner import use_threads
from engine.types import Batch, Entry, Item, Output, Work
from tests.bench.case import Found, Pace, Study, Unreliable
from tests.bench.figures import Reading, at_least
from tests.bench.jobs import MINILM
from tests.bench.packing import deal, pack
from tests.bench.texts import Text, load_tokenizer, texts

BUDGETS = (256, 1024, 4096, 16_384)
BUDGET = 1024
COUNT = 300
WAYS = ("torch, padded", "torch, unpadded", "ONNX Runtime", "ONNX Runtime, int8")


@dataclass(frozen=True, slots=True)
class Way:
    """One way of running the model."""

    name: str
    adapter: Adapter


def measure(pace: Pace, number: int) -> Found:
    """Each way on the same texts, then each size of batch on the first; the order turns with the round."""
    found = Found()
    spec = Catalog.load([]).find(MINILM).spec
    folder = locate(spec)
    assert folder is not None, "this model has weights"
    chosen = texts(COUNT if pace.quick else 3 * COUNT, load_tokenizer(folder), spec.max_length)
    ways = [_loaded(name) for name in WAYS]
    vectors = {way.name: _vectors(way, chosen) for way in ways}
    expected = vectors[WAYS[0]]
    for way in ways[1:]:
        cosines = np.sum(vectors[way.name] * expected, axis=1)
        found.add(Reading(f"{way.name}: mean cosine to torch, padded", float(cosines.mean()), ""))
        found.add(
            Reading(f"{way.name}: worst cosine to torch, padded", float(cosines.min()), "", at_least(_least(way.name)))
        )
    seconds: dict[str, list[float]] = {way.name: [] for way in ways}
    lone: dict[str, list[float]] = {way.name: [] for way in ways}
    for turn in range(2 if pace.quick else 5):
        for way in _turned(ways, number + turn):
            seconds[way.name].append(_spent(way, chosen, BUDGET))
            lone[way.name].append(_lone(way, chosen[:20]))
    base, base_lone = min(seconds[WAYS[0]]), min(lone[WAYS[0]])
    for way in ways:
        found.add(Reading(f"{way.name}: items", len(chosen) / min(seconds[way.name]), "items/s"))
        found.add(Reading(f"{way.name}: rate over torch, padded", base / min(seconds[way.name]), "times"))
        found.add(Reading(f"{way.name}: a text alone over torch, padded", min(lone[way.name]) / base_lone, "times"))
        found.add(Reading(f"{way.name}: memory", (way.adapter.held() or 0) / 2**20, "MiB"))
    sizes = {budget: min(_spent(ways[0], chosen, budget) for _ in range(2)) for budget in BUDGETS}
    for budget in BUDGETS:
        share = sizes[BUDGETS[-1]] / sizes[budget]
        found.add(Reading(f"torch, padded: {budget} tokens a batch over {BUDGETS[-1]}", share, "times"))
    for way in ways:
        way.adapter.unload()
    return found


def _loaded(name: str) -> Way:
    load: dict[str, object] = {"padding": "always" if name == WAYS[0] else "auto"}
    if name.startswith("ONNX"):
        load = {"runtime": "onnx", "precision": "int8" if name.endswith("int8") else "float32"}
    choice = Catalog.load([]).find(MINILM)
    adapter = build_adapter(_Choice(choice.key, choice.spec, load), CpuDevice())
    adapter.load()
    return Way(name, adapter)


@dataclass(frozen=True, slots=True)
class _Choice:
    key: str
    spec: Spec
    load: Mapping[str, Any]


def _least(name: str) -> float:
    if not name.endswith("int8"):
        return 0.9999
    return Catalog.load([]).find(MINILM).spec.precisions["int8"].cosine_worst - 0.01


def _batch(chosen: Sequence[Text], places: Sequence[int]) -> Batch:
    items = tuple(Item(place, {"text": chosen[place].text}, chosen[place].tokens, 1.0) for place in places)
    work = Work("w", MINILM, Verb.ENCODE, items, EncodeOptions(), Lane.INTERACTIVE, 5, arrived=0.0)
    return Batch(1, MINILM, Verb.ENCODE, tuple(Entry(work, item) for item in items))


def _vectors(way: Way, chosen: Sequence[Text]) -> NDArray[np.float32]:
    rows: dict[int, NDArray[np.float32]] = {}
    use_threads(way.adapter, os.cpu_count() or 1)
    for places in pack([text.tokens for text in chosen], BUDGET):
        for place, outcome in zip(places, way.adapter.run(_batch(chosen, places)), strict=True):
            if not isinstance(outcome, Output):
                raise Unreliable(f"{way.name} failed: {outcome}")
            rows[place] = np.frombuffer(outcome.fields["dense"]["values"], dtype="<f4")
    return np.stack([rows[place] for place in range(len(chosen))])


def _spent(way: Way, chosen: Sequence[Text], budget: int) -> float:
    """Seconds for all texts, with a single-threaded lane on each core and batches of at most `budget` tokens."""
    lanes = os.cpu_count() or 1
    hands = deal(pack([text.tokens for text in chosen], budget), lanes)
    ready = threading.Barrier(lanes + 1)

    def serve(batches: Sequence[Sequence[int]]) -> None:
        use_threads(way.adapter, 1)
        ready.wait()
        for places in batches:
            way.adapter.run(_batch(chosen, places))

    with ThreadPoolExecutor(lanes) as pool:
        lines = [pool.submit(serve, hand) for hand in hands]
        ready.wait()
        began = time.perf_counter()
        for line in lines:
            line.result()
    return time.perf_counter() - began


def _lone(way: Way, chosen: Sequence[Text]) -> float:
    """Seconds for texts one after the other, each over all cores."""
    use_threads(way.adapter, os.cpu_count() or 1)
    began = time.perf_counter()
    for place in range(len(chosen)):
        way.adapter.run(_batch(chosen, [place]))
    return time.perf_counter() - began


def _turned(ways: Sequence[Way], turn: int) -> list[Way]:
    first = turn % len(ways)
    return [*ways[first:], *ways[:first]]


STUDY = Study(
    name="runtimes",
    title="MiniLM on a CPU in each way it can be run, in process, mixed lengths",
    measure=measure,
    notes=(
        f"ideal batches of {BUDGET} tokens, one single-threaded lane a core, the best of some interleaved runs",
        "'alone' is one text after the other, each over all cores",
    ),
)
