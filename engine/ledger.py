"""The account of a device's bytes, and the plan of who leaves to make room. Pure: no clock, no lock, no device.

The account holds what loaded models take, and lends the rest to batches for their activations. For each model a floor
of activation bytes stays free of weights, so that any model that is loaded can also run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class EvictionOrder(StrEnum):
    """What makes a model worth keeping: its value for its bytes, or its last use alone."""

    VALUE = "value"
    LRU = "lru"


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """When a model may be made to leave.

    `min_stay_s` keeps a model that has just come from leaving at once. A model that others still wait for is given up
    only once it has served, and once the newcomer has waited as long as bringing it back will take; but neither holds
    it for longer than `longest_hold_s`.
    """

    order: EvictionOrder = EvictionOrder.VALUE
    min_stay_s: float = 2.0
    longest_hold_s: float = 30.0
    half_life_s: float = 60.0


DEFAULT_EVICTION = EvictionPolicy()


@dataclass(frozen=True, slots=True)
class Resident:
    """A loaded model, as far as eviction looks at it. `wanted` says that items wait for it."""

    model: str
    bytes: int
    pinned: bool
    wanted: bool
    loaded: float
    used: float
    reload_s: float
    demand: float

    @property
    def value(self) -> float:
        """The cost to bring it back, times recent demand, for each byte it takes."""
        return self.reload_s * self.demand / max(self.bytes, 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """Who leaves, and the time from which that may be done. No victims: there is room already."""

    victims: tuple[str, ...]
    at: float


def plan_room(
    need: int,
    free: int,
    residents: Iterable[Resident],
    *,
    asked: float,
    now: float,
    policy: EvictionPolicy = DEFAULT_EVICTION,
) -> Plan | None:
    """Who must leave so that `need` bytes are free, the least valuable first; None if no set of them would do.

    Pinned models stay. A victim that is leased leaves once its leases have ended. `asked` is when the newcomer was
    first wanted.
    """
    missing = need - free
    if missing <= 0:
        return Plan((), now)
    victims: list[Resident] = []
    for resident in sorted(residents, key=lambda r: _rank(r, policy)):
        if resident.pinned or resident.bytes <= 0:
            continue
        if missing <= 0:
            break
        victims.append(resident)
        missing -= resident.bytes
    if missing > 0:
        return None
    # The last one may have made so much room that an earlier one can stay.
    for resident in reversed(victims[:-1]):
        if missing + resident.bytes <= 0:
            victims.remove(resident)
            missing += resident.bytes
    return Plan(tuple(v.model for v in victims), _earliest(victims, asked, now, policy))


def decayed(demand: float, seconds: float, policy: EvictionPolicy = DEFAULT_EVICTION) -> float:
    """What is left of a demand after a time: half of it after each half-life."""
    return demand * math.exp2(-max(0.0, seconds) / policy.half_life_s)


def _rank(resident: Resident, policy: EvictionPolicy) -> tuple[bool, float, float]:
    if policy.order is EvictionOrder.LRU:
        return (False, resident.used, 0.0)
    return (resident.wanted, resident.value, resident.used)


def _earliest(victims: Sequence[Resident], asked: float, now: float, policy: EvictionPolicy) -> float:
    at = now
    for victim in victims:
        if victim.wanted and victim.used <= victim.loaded:
            # It was brought here for work that it has not done yet.
            stay = policy.longest_hold_s
        elif victim.wanted:
            stay = max(policy.min_stay_s, victim.reload_s)
        else:
            # One that nobody waits for may leave soon, if it comes back soon.
            stay = min(policy.min_stay_s, victim.reload_s)
        at = max(at, victim.loaded + min(stay, policy.longest_hold_s))
    hold = sum(victim.reload_s for victim in victims if victim.wanted)
    return max(at, asked + min(hold, policy.longest_hold_s))


@dataclass(slots=True)
class _Account:
    weights: int
    floor: int


class Ledger:
    """The bytes of one device in this process. Not locked: its owner is."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.lent = 0
        self._accounts: dict[str, _Account] = {}

    @property
    def weights(self) -> int:
        """Bytes of all models that are loaded or being loaded."""
        return sum(account.weights for account in self._accounts.values())

    @property
    def excess(self) -> int:
        """Bytes by which weights and the activation floor are over the budget; zero or less when they fit."""
        return self.weights + self._floor(0) - self.budget

    def fits_ever(self, weights: int, floor: int, beside: int = 0) -> bool:
        """Whether a model could be held if all others left but `beside` bytes that cannot."""
        return weights + floor + beside <= self.budget

    def room(self, floor: int) -> int:
        """Bytes free for the weights of a newcomer with this activation floor, once what is lent has come back."""
        return self.budget - self.weights - self._floor(floor)

    def hold(self, model: str, weights: int, floor: int) -> None:
        """Reserve a model's bytes, or correct them once they were measured."""
        self._accounts[model] = _Account(weights, floor)

    def free(self, model: str) -> None:
        """A model has gone."""
        self._accounts.pop(model, None)

    def held(self, model: str) -> int:
        """Bytes of a model's weights."""
        account = self._accounts.get(model)
        return account.weights if account else 0

    @property
    def lendable(self) -> int:
        """Bytes that a batch may take for its activations now."""
        return self.budget - self.weights - self.lent

    def lend(self, count: int) -> None:
        """A batch takes activation bytes; a negative count gives them back."""
        self.lent += count

    def _floor(self, floor: int) -> int:
        return max([floor, *(account.floor for account in self._accounts.values())])
