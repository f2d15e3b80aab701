"""Three real models on a budget for two, in process: what a switch takes by either way, and what fifty leave behind."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from catalog.loader import Catalog
from catalog.options import EncodeOptions
from catalog.terms import Lane, Verb
from engine.device import choose_device
from engine.engine import Engine, EngineLimits
from engine.eviction import EvictionOrder, EvictionPolicy
from engine.snapshot import ModelState, Phase
from engine.types import Finished, Item, Output, Work
from tests.bench.case import Found, Pace, Study, Unreliable
from tests.bench.figures import Reading, at_least, at_most, percentile
from tests.bench.inprocess import Waiter
from tests.bench.models import minilm

NAMES = tuple(f"bench/switch-{number}" for number in range(3))
MIB = 2**20
AT_ONCE = EvictionPolicy(EvictionOrder.LRU, min_stay_s=0.0, longest_hold_s=0.0, pace_s=0.0)
"""What a switch takes, without the order, stays and pauses that keep switches rare: three in turn always miss."""

SETTLED, CYCLES = 5, 50
PATIENCE_S = 180.0


@dataclass(slots=True)
class Bench:
    """An engine with three models, and calls to it one after the other."""

    engine: Engine
    waiter: Waiter
    count: int = 0

    @classmethod
    def start(cls, folder: Path, budget: int, host: int) -> Bench:
        """An engine on the CPU."""
        waiter = Waiter()
        limits = EngineLimits(budget_bytes=budget, host_bytes=host)
        engine = Engine(Catalog.load([folder]), choose_device("cpu"), limits, waiter, eviction=AT_ONCE)
        engine.start()
        return cls(engine, waiter)

    def call(self, model: str) -> tuple[Finished, float]:
        """One short text on a model, and the seconds until its vector is there."""
        self.count += 1
        item = Item(0, {"text": f"a short text, number {self.count}"}, 10, 5.0)
        began = time.monotonic()
        work = Work(f"w{self.count}", model, Verb.ENCODE, (item,), EncodeOptions(), Lane.INTERACTIVE, 5, arrived=began)
        self.engine.submit([work])
        done = self.waiter.wait(PATIENCE_S)
        if not isinstance(done.outcomes[0], Output):
            raise Unreliable(f"{model} failed: {done.outcomes[0]}")
        return done, time.monotonic() - began

    def states(self) -> dict[str, ModelState]:
        """The models as the engine tells them."""
        return {state.model: state for state in self.engine.snapshot().models}


def measure(pace: Pace, number: int) -> Found:
    """Switch by either way, then cycle."""
    found = Found()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in NAMES:
            (folder / f"{model.replace('/', '__')}.yaml").write_text(yaml.safe_dump(minilm(model)))
        size = _size(folder, found)
        budget = int(2.6 * size)
        turns = 9 if pace.quick else 30
        from_files = _switches(folder, budget, 0, turns)
        from_host = _switches(folder, budget, 4 * size, turns)
        found.add(
            Reading("a switch from files, p50", percentile(from_files, 50) * 1000, "ms"),
            Reading("a switch through host memory, p50", percentile(from_host, 50) * 1000, "ms"),
            Reading(
                "from files over through host memory",
                percentile(from_files, 50) / percentile(from_host, 50),
                "times",
                at_least(1),
            ),
            *_cycles(folder, budget, size, 12 if pace.quick else CYCLES),
        )
    return found


def _size(folder: Path, found: Found) -> int:
    """What one of them takes, and how well that was said before: the second one, as the first brings the libraries."""
    bench = Bench.start(folder, 2**33, 0)
    try:
        bench.call(NAMES[0])
        before = _rss()
        bench.call(NAMES[1])
        grown = _rss() - before
        state = bench.states()[NAMES[1]]
    finally:
        bench.engine.stop()
    found.add(
        Reading("ledger over estimate, off by", abs(state.bytes / state.estimate - 1) * 100, "%", at_most(5)),
        Reading("ledger over the process's growth", state.bytes / max(grown, 1), "times"),
    )
    return state.bytes


def _switches(folder: Path, budget: int, host: int, turns: int) -> list[float]:
    """Seconds of calls that each need a model that is not there: the three take turns, and two fit."""
    bench = Bench.start(folder, budget, host)
    try:
        for model in NAMES * 2:
            bench.call(model)
        spent = [bench.call(NAMES[turn % 3])[1] for turn in range(turns)]
        states = bench.states()
    finally:
        bench.engine.stop()
    came = sum(state.loads + state.restores for state in states.values())
    if came < turns or (host > 0) != any(state.restores for state in states.values()):
        raise Unreliable(f"{came} loads and returns in {turns} turns, which should all have been switches")
    return spent


def _cycles(folder: Path, budget: int, size: int, cycles: int) -> list[Reading]:
    """Load, run, evict, over and over: what stays in the process."""
    bench = Bench.start(folder, budget, 0)
    try:
        settled = 0
        for cycle in range(1, cycles + 1):
            for model in NAMES:
                bench.call(model)
            if cycle == SETTLED:
                settled = _rss()
        grown = _rss() - settled
        there = [state for state in bench.states().values() if state.phase is Phase.RESIDENT]
    finally:
        bench.engine.stop()
    if len(there) != 2:
        raise Unreliable(f"{len(there)} models are resident where two fit")
    return [
        Reading(f"memory after {cycles} cycles over after {SETTLED}, in models", grown / size, "times", at_most(0.25)),
        Reading(f"memory after {cycles} cycles over after {SETTLED}", grown / MIB, "MiB"),
    ]


def _rss() -> int:
    return int(psutil.Process(os.getpid()).memory_info().rss)


STUDY = Study(
    name="switching",
    title="three real models on a budget for two, taking turns in process",
    measure=measure,
    notes=(
        "all-MiniLM-L6-v2 under three names; every call needs a model that is not there",
        "on a CPU a parked model's weights stay where they are, so that a return is bookkeeping; a card copies them",
        "stays and pauses are off: this is what a switch takes, not how rare the policy makes them",
    ),
)
