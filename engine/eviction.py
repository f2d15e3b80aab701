"""Who leaves a device to make room, and when. Pure: no clock, no lock, no device."""

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
