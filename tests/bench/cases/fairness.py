"""Waits under unfair traffic, as ratios to the fair share, on the virtual clock with the real scheduler.

The fair share of a job is the wait it would have if the callers with work on the device shared it evenly at every
moment (generalized processor sharing): its own cost times the callers that are there.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import count

from catalog.schema import CostCoefficients
from catalog.terms import Lane, Verb
from engine.batcher import Bounds
from engine.types import Item, Work
from tests.bench.case import Found, Pace, Study
from tests.bench.figures import Reading, at_most, percentile
from tests.bench.simulation.record import Record
from tests.bench.simulation.traffic import OPTIONS, SimModel
from tests.bench.simulation.world import OVERHEAD_MS, Card, World

COST = CostCoefficients(base=4.0, per_token=0.2)
SHORT, LONG = 80, 39_980
"""Lengths of items that cost 20 and 8,000 ms by themselves."""

CARD = Card(budget=2**40, batch_tokens=1024)
BATCH_MS = COST.batch(CARD.batch_tokens // SHORT, SHORT) + OVERHEAD_MS
SHORT_MS = COST.batch(1, SHORT)
BULK_MS = (210.0, 70.0, 21.0)
"""How long a bulk batch may take: 12 items, 4 and 1."""


def measure(pace: Pace, number: int) -> Found:
    """One round; its number is the seed."""
    rng = random.Random(number)
    seconds = 120.0 if pace.quick else 600.0
    found = Found()
    for callers in (1, 10):
        wait = long_wait(callers, rng)
        share = wait / (COST.batch(1, LONG) / 1000 * (callers + 1))
        what = f"an item of 8,000 under an endless flood of 20 from {callers} caller{'s' * (callers > 1)}"
        found.add(Reading(f"{what}: wait over its fair share", share, "times", at_most(2)))
    wait = single_wait(10_000)
    found.add(
        Reading("one job beside another caller's 10,000: its wait", wait * 1000 / BATCH_MS, "batches", at_most(3)),
        Reading("one job beside another caller's 10,000: over its fair share", wait * 1000 / SHORT_MS / 2, "times"),
    )
    for load in (0.5, 0.9):
        alone = interactive_waits(load, seconds, None, number)
        for most_ms in BULK_MS:
            tokens = Bounds(CARD.batch_items, CARD.batch_tokens, COST, OVERHEAD_MS).within(most_ms).tokens
            beside = interactive_waits(load, seconds, tokens, number)
            what = f"interactive at {load:.0%}, bulk waiting, up to {tokens // SHORT} to a bulk batch"
            ratio = percentile(beside, 99) / percentile(alone, 99)
            excess_ms = (percentile(beside, 99) - percentile(alone, 99)) * 1000
            bulk_ms = COST.batch(tokens // SHORT, SHORT) + OVERHEAD_MS
            found.add(
                Reading(f"{what}: p99 over that without bulk", ratio, "times", at_most(1.25)),
                Reading(f"{what}: what it adds", excess_ms / bulk_ms, "bulk batches"),
            )
    return found


def long_wait(callers: int, rng: random.Random, flood_s: float = 400.0) -> float:
    """Seconds that a long item waits for its end; the flood is half again as much as the device can do."""
    rate = 1.5 * 1000 / SHORT_MS

    def flood() -> Iterator[Work]:
        at, ids = 0.0, count()
        sent = False
        while at < flood_s:
            at += rng.expovariate(rate)
            if at > 5.0 and not sent:
                sent = True
                yield _work("long", 5.0, LONG, caller="long")
            yield _work(f"s{next(ids)}", at, SHORT, caller=f"c{rng.randrange(callers)}")

    return _wait(flood(), "long", flood_s)


def single_wait(jobs: int) -> float:
    """Seconds that one job waits that comes just after another caller's many."""
    many = [_work(f"s{number}", 0.0, SHORT, caller="many") for number in range(jobs)]
    return _wait([*many, _work("one", 0.001, SHORT, caller="one")], "one", 5.0)


def interactive_waits(load: float, seconds: float, bulk_tokens: int | None, seed: int) -> list[float]:
    """Waits of interactive works that take `load` of the device one by one, beside a bulk lane that never empties."""
    rng = random.Random(seed)

    def coming() -> Iterator[Work]:
        if bulk_tokens:
            for number in range(int(seconds * 1000 / SHORT_MS)):
                yield _work(f"b{number}", 0.0, SHORT, caller="bulk", lane=Lane.BULK, model="bulk")
        at, ids = 0.0, count()
        while at < seconds:
            at += rng.expovariate(load * 1000 / SHORT_MS)
            yield _work(f"i{next(ids)}", at, SHORT, caller=f"c{rng.randrange(10)}")

    record = _play(coming(), seconds, {"bulk": bulk_tokens} if bulk_tokens else {})
    return [ended - work.arrived for work, ended in record.done if work.lane is Lane.INTERACTIVE]


def _wait(works: Iterable[Work], name: str, seconds: float) -> float:
    return next(ended - work.arrived for work, ended in _play(works, seconds, {}).done if work.id == name)


def _play(works: Iterable[Work], seconds: float, tokens: dict[str, int]) -> Record:
    models = [SimModel(name, 1, 1.0, 0.1, COST, 0.5) for name in ("interactive", "bulk")]
    world = World(models, CARD, resident=True, tokens=tokens)
    return world.run(works, Record(0.0, seconds), drain_s=0.0)


def _work(
    name: str, at: float, length: int, *, caller: str, lane: Lane = Lane.INTERACTIVE, model: str = "interactive"
) -> Work:
    item = Item(0, {}, length, COST.batch(1, length))
    return Work(name, model, Verb.ENCODE, (item,), OPTIONS, lane, 5, at, caller=caller)


STUDY = Study(
    name="fairness",
    title="waits under unfair traffic over the fair share, on a virtual clock with the real scheduler",
    measure=measure,
    notes=(
        "fair share: the job's own cost times the callers that have work on the device (processor sharing)",
        "a batch that runs is not interrupted; while interactive work comes, bulk batches are no longer than its own",
    ),
)
