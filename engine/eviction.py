"""Who leaves a device to make room, for whom, and when. Pure: no clock, no lock, no device.

Time is what a load costs: while a model of reload time r comes, and again while its victim comes back, callers wait. So
a resident is worth its reload time times its recent demand, for each byte it takes; and of those that wait outside, the
one whose items have waited longest, together and for each second of its load, comes first. That is the index of
restless bandits (Whittle, "Restless bandits: activity allocation in a changing world", 1988) with waiting as the cost.

Three rules bound what the values would allow. A model that has come stays a while. One that was sent away comes back
only after a pause that grows with the square of its load, up to `pace_s`: a second of load makes all others wait for a
second. And one that has waited for `overdue_s` is served in the order of asking, and nobody behind it takes its room.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class EvictionOrder(StrEnum):
    """What makes a model worth keeping: its value for its bytes, or its last use alone."""

    VALUE = "value"
    LRU = "lru"


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """When a model may be made to leave, and when one may come.

    `min_stay_s` keeps a model that has just come from leaving at once. A model that others still wait for is given up
    only once it has served, and once the newcomer's items have waited as much as the victims' will; but neither holds
    it for longer than `longest_hold_s`. `pace_s` is the pause of loads of a second and more, and should be no longer
    than `overdue_s`. Recent demand halves with each `half_life_s`.
    """

    order: EvictionOrder = EvictionOrder.VALUE
    min_stay_s: float = 2.0
    longest_hold_s: float = 30.0
    half_life_s: float = 120.0
    pace_s: float = 60.0
    overdue_s: float = 120.0


DEFAULT_EVICTION = EvictionPolicy()


@dataclass(frozen=True, slots=True)
class Resident:
    """A loaded model, as far as eviction looks at it. `wanted` says that items wait for it, `leased` that some run."""

    model: str
    bytes: int
    pinned: bool
    wanted: bool
    loaded: float
    used: float
    reload_s: float
    demand: float
    leased: bool = False

    @property
    def value(self) -> float:
        """The cost to bring it back, times recent demand, for each byte it takes."""
        return self.reload_s * self.demand / max(self.bytes, 1)


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A model that is wanted and not there. `due` is when it was first wanted, or later for one that can wait.

    `waiting` counts the items that wait, `reload_s` is what bringing it takes as far as that is known, and `displaced`
    when it had last come, if it was then sent away for another one. `alone` says that the loader has no other to bring.
    """

    due: float
    waiting: float
    reload_s: float
    displaced: float | None = None
    alone: bool = False

    def overdue(self, now: float, policy: EvictionPolicy) -> bool:
        """Whether it has waited so long that only those who have waited longer go before it."""
        return now - self.due >= policy.overdue_s

    def rank(self, now: float, policy: EvictionPolicy) -> tuple[bool, float, float]:
        """Its place among those that wait outside; the least comes first."""
        if self.overdue(now, policy) or now < self.due:
            return (not self.overdue(now, policy), 0.0, self.due)
        return (True, -self.waiting * (now - self.due) / self.reload_s, self.due)

    def paused(self, policy: EvictionPolicy, victims: Iterable[Resident] = ()) -> float:
        """Until when it may not come, for it has only just been here; whatever room there is.

        Where nobody wants the loader or a victim's room there is nobody to be spared, and no pause.
        """
        if self.displaced is None or (self.alone and not any(v.wanted or v.leased for v in victims)):
            return -math.inf
        return self.displaced + policy.pace_s * min(1.0, self.reload_s) ** 2


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
    newcomer: Newcomer | None = None,
    now: float,
    policy: EvictionPolicy = DEFAULT_EVICTION,
    going: Collection[str] = (),
) -> Plan | None:
    """Who must leave so that `need` bytes are free, the least valuable first; None if no set of them would do.

    Pinned models stay, and of the others those in `going` leave in any case. A victim that is leased leaves once its
    leases have ended. Without a newcomer the room is needed at once: no stay is kept. With one, the plan's time is no
    later than the latest of now, the end of the newcomer's pause, and `longest_hold_s` after it was due or a victim
    came.
    """
    missing = need - free
    if missing <= 0 and not going:
        return Plan((), now if newcomer is None else max(now, newcomer.paused(policy)))
    victims: list[Resident] = []
    for resident in sorted(residents, key=lambda r: (r.model not in going, _rank(r, policy))):
        if resident.pinned or resident.bytes <= 0:
            continue
        if missing <= 0 and resident.model not in going:
            break
        victims.append(resident)
        missing -= resident.bytes
    if missing > 0:
        return None
    # The last one may have made so much room that an earlier one can stay.
    for resident in reversed(victims[:-1]):
        if resident.model not in going and missing + resident.bytes <= 0:
            victims.remove(resident)
            missing += resident.bytes
    at = now if newcomer is None else _earliest(victims, newcomer, now, policy)
    return Plan(tuple(v.model for v in victims), at)


def decayed(demand: float, seconds: float, policy: EvictionPolicy = DEFAULT_EVICTION) -> float:
    """What is left of a demand after a time: half of it after each half-life."""
    return demand * math.exp2(-max(0.0, seconds) / policy.half_life_s)


def _rank(resident: Resident, policy: EvictionPolicy) -> tuple[bool, float, float]:
    if policy.order is EvictionOrder.LRU:
        # To come is a use: otherwise the next victim is the one that has just come and not served yet.
        return (False, max(resident.used, resident.loaded), 0.0)
    return (resident.wanted, resident.value, resident.used)


def _earliest(victims: Sequence[Resident], newcomer: Newcomer, now: float, policy: EvictionPolicy) -> float:
    at = max(now, newcomer.paused(policy, victims))
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
    lost = sum(_lost(victim, newcomer, policy) for victim in victims)
    return max(at, newcomer.due + min(lost / max(newcomer.waiting, 1.0), policy.longest_hold_s))


def _lost(victim: Resident, newcomer: Newcomer, policy: EvictionPolicy) -> float:
    """Seconds that a victim's items will wait, all together, if it comes back right after the newcomer has come."""
    rate = victim.demand * math.log(2) / policy.half_life_s
    away = newcomer.reload_s + victim.reload_s
    return rate * away * away / 2
