"""Fifty models on a card that holds a fifth of them, under the engine's policy and under what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.eviction import DEFAULT_EVICTION, EvictionOrder, EvictionPolicy
from tests.bench.simulation.inorder import InOrder
from tests.bench.simulation.record import Figures, Record, figures
from tests.bench.simulation.traffic import Mix, Shape, total_bytes, works, zipf_models
from tests.bench.simulation.world import Card, World

MODELS = 50
TIMES_THE_BUDGET = 5
LOAD = 0.8
DRAIN_S = 1800.0

PLAIN_LRU = EvictionPolicy(
    order=EvictionOrder.LRU, min_stay_s=0.0, longest_hold_s=0.0, half_life_s=120.0, pace_s=0.0, overdue_s=0.0
)
"""Who was used longest ago leaves, who asked first comes, and nobody is held or paced."""


class Contender(StrEnum):
    """Who decides what is loaded, what leaves and what runs."""

    IDEAL = "all resident"
    ROOST = "Roost"
    LRU = "plain LRU"
    IN_ORDER = "first come, first served"


@dataclass(frozen=True, slots=True)
class Setting:
    """One run. With `host`, host memory has room for all models that are not on the card."""

    contender: Contender
    shape: Shape
    host: bool
    seed: int
    seconds: float
    warmup_s: float = 600.0
    load: float = LOAD
    policy: EvictionPolicy = DEFAULT_EVICTION


def play(setting: Setting) -> Figures:
    """Run one setting on the virtual clock."""
    models = zipf_models(MODELS, setting.seed)
    total = total_bytes(models)
    ideal = setting.contender is Contender.IDEAL
    card = Card(total if ideal else total // TIMES_THE_BUDGET, total if setting.host else 0)
    record = Record(setting.warmup_s, setting.seconds)
    coming = works(Mix(models, setting.seconds, setting.load, setting.shape), setting.seed)
    if setting.contender is Contender.IN_ORDER:
        InOrder(models, card).run(coming, record, DRAIN_S)
    else:
        policy = PLAIN_LRU if setting.contender is Contender.LRU else setting.policy
        World(models, card, policy, resident=ideal).run(coming, record, DRAIN_S)
    return figures(record, MODELS)
