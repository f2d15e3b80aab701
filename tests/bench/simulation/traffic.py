"""Models of mixed sizes, and the works that arrive for them. Seeded: the same numbers give the same traffic."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heapreplace

from catalog.options import EncodeOptions
from catalog.schema import CostCoefficients
from catalog.terms import Lane, Verb
from engine.types import Item, Work

MIB = 2**20
SMALLEST, LARGEST = 200 * MIB, 4096 * MIB
OPTIONS = EncodeOptions()


class Shape(StrEnum):
    """How works come: independently of each other, or each model's in bursts with silence between them."""

    POISSON = "poisson"
    BURSTY = "bursty"


@dataclass(frozen=True, slots=True)
class SimModel:
    """One model: what it takes, how long it takes to come, what its batches cost, its part of the traffic."""

    name: str
    bytes: int
    load_s: float
    restore_s: float
    cost: CostCoefficients
    part: float


@dataclass(frozen=True, slots=True)
class Mix:
    """What arrives. `load` is the device's share that it would take if every item ran alone and all were resident."""

    models: tuple[SimModel, ...]
    seconds: float
    load: float
    shape: Shape = Shape.POISSON
    callers: int = 20
    bulk: float = 0.1
    on_s: float = 30.0
    off_s: float = 90.0


def zipf_models(count: int, seed: int, exponent: float = 1.0) -> tuple[SimModel, ...]:
    """Models of sizes spread evenly over the orders of magnitude, with Zipf's traffic over them in random order.

    A file is read at 560 MiB/s after 0.7 s, which makes 1 to 8 s; a copy back takes 15 ms and then 22 GiB/s, 24 to 195
    ms. Cost goes with size, but less than in proportion, as larger models compute more efficiently.
    """
    rng = random.Random(seed)
    ranks = list(range(1, count + 1))
    rng.shuffle(ranks)
    total = sum(rank**-exponent for rank in ranks)
    models = []
    for number, rank in enumerate(ranks):
        size = int(SMALLEST * (LARGEST / SMALLEST) ** (number / max(count - 1, 1)))
        cost = CostCoefficients(base=8.0, per_token=0.4 * math.sqrt(size / SMALLEST))
        load_s, restore_s = 0.7 + size / (560 * MIB), 0.015 + size / (22_528 * MIB)
        models.append(SimModel(f"m{number:02}", size, load_s, restore_s, cost, rank**-exponent / total))
    return tuple(models)


def works(mix: Mix, seed: int) -> Iterator[Work]:
    """The works in the order of their arrival, of one to eight items of log-normal lengths."""
    rng = random.Random(seed)
    rate = mix.load / sum(m.part * _mean_work_s(m) for m in mix.models)
    streams = [_times(mix, rate * m.part, rng) for m in mix.models]
    heap = [(next(stream), number) for number, stream in enumerate(streams)]
    heapify(heap)
    count = 0
    while heap[0][0] < mix.seconds:
        at, number = heap[0]
        heapreplace(heap, (next(streams[number]), number))
        count += 1
        yield _work(mix, mix.models[number], at, f"w{count}", rng)


_ITEMS = (1, 1, 1, 1, 2, 2, 4, 8)
_MEDIAN, _SIGMA, _LONGEST = 64.0, 0.8, 512


def _length(rng: random.Random) -> int:
    return min(_LONGEST, max(3, int(rng.lognormvariate(math.log(_MEDIAN), _SIGMA))))


def _mean_length() -> float:
    rng = random.Random(0)
    return sum(_length(rng) for _ in range(20_000)) / 20_000


_MEAN_LENGTH = _mean_length()


def _mean_work_s(model: SimModel) -> float:
    items = sum(_ITEMS) / len(_ITEMS)
    return items * (model.cost.base + model.cost.item(1) * _MEAN_LENGTH) / 1000


def _work(mix: Mix, model: SimModel, at: float, name: str, rng: random.Random) -> Work:
    items = []
    for index in range(rng.choice(_ITEMS)):
        length = _length(rng)
        items.append(Item(index, {}, length, model.cost.batch(1, length)))
    lane = Lane.BULK if rng.random() < mix.bulk else Lane.INTERACTIVE
    caller = f"c{rng.randrange(mix.callers)}"
    return Work(name, model.name, Verb.ENCODE, tuple(items), OPTIONS, lane, 5, at, caller=caller)


def _times(mix: Mix, rate: float, rng: random.Random) -> Iterator[float]:
    """Arrival times: Poisson, or Poisson while a source is on, at a rate that makes up for the time it is off."""
    at = 0.0
    if mix.shape is Shape.POISSON:
        while True:
            at += rng.expovariate(rate)
            yield at
    rate *= (mix.on_s + mix.off_s) / mix.on_s
    at = rng.uniform(0.0, mix.off_s)
    while True:
        end = at + rng.expovariate(1 / mix.on_s)
        at += rng.expovariate(rate)
        while at < end:
            yield at
            at += rng.expovariate(rate)
        at = end + rng.expovariate(1 / mix.off_s)


def total_bytes(models: Sequence[SimModel]) -> int:
    """What all of them take together."""
    return sum(model.bytes for model in models)
