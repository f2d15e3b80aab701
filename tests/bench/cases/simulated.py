"""Fifty models at five times the budget on a virtual clock: what the policy promises, and what others make of it."""

from __future__ import annotations

from tests.bench.case import Found, Pace, Study
from tests.bench.figures import Reading, at_least, at_most
from tests.bench.simulation.record import Figures
from tests.bench.simulation.scenario import Contender, Setting, play
from tests.bench.simulation.traffic import Shape

NEVER, ONCE = at_most(0), at_most(1, "a model and minute")
TIERS = {False: "from files", True: "from host memory"}


def measure(pace: Pace, number: int) -> Found:
    """One seed: every round has models and traffic of its own."""
    seconds, warmup_s = (1800.0, 300.0) if pace.quick else (7200.0, 600.0)
    found = Found()
    for shape in Shape:
        ideal = play(Setting(Contender.IDEAL, shape, False, number + 1, seconds, warmup_s))
        for host, tier in TIERS.items():
            roost, lru, in_order = (
                play(Setting(contender, shape, host, number + 1, seconds, warmup_s))
                for contender in (Contender.ROOST, Contender.LRU, Contender.IN_ORDER)
            )
            found.add(*readings(f"{shape}, {tier}", ideal, roost, lru, in_order))
    return found


def readings(label: str, ideal: Figures, roost: Figures, lru: Figures, in_order: Figures) -> list[Reading]:
    """One tier under one traffic."""
    return [
        Reading(f"{label}: failed jobs", roost.failed + roost.left, "", NEVER),
        Reading(f"{label}: loads from files, average", roost.loads_per_minute, "", ONCE),
        Reading(f"{label}: loads from files, most", roost.most_loads, "", ONCE),
        Reading(f"{label}: returns from host memory, average", roost.returns_per_minute, "a model and minute"),
        Reading(f"{label}: throughput over all resident", roost.done_ms / ideal.done_ms, "times", at_least(0.95)),
        Reading(f"{label}: throughput over plain LRU", roost.done_ms / lru.done_ms, "times"),
        Reading(f"{label}: throughput over first come, first served", roost.done_ms / in_order.done_ms, "times"),
        Reading(f"{label}: mean wait, plain LRU over Roost", lru.mean / roost.mean, "times", at_least(1)),
        Reading(f"{label}: wait p50", roost.p50, "s"),
        Reading(f"{label}: wait p99", roost.p99, "s"),
        Reading(f"{label}: longest wait", roost.longest, "s"),
        Reading(f"{label}: device idle for loads", roost.starved, "of the time"),
    ]


STUDY = Study(
    name="simulated",
    title="50 models at 5 times the budget, Zipf traffic at 80 % of the device, on a virtual clock",
    measure=measure,
    notes=(
        "the engine's own scheduler, placement and eviction, without threads; a round is a seed; docs/simulation.md",
    ),
)
