"""What a worker and the others on the same queues tell each other: where models are, and who is how busy.

It goes through Valkey, under a lease that is renewed several times over its length: a worker that dies is soon nobody's
reason to leave a message alone. What is told is a hint for the next pulls; a stale one costs a load or a wait.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tasks.pull_script import Plan
from tasks.survey import Choice, Survey, pack_place
from tasks.worker.delivery import Delivery
from tasks.worker.holding import Holding
from tasks.worker.placement import choose

log = logging.getLogger(__name__)

LEASE_S = 3.0
"""For so long a worker that says nothing is believed to be alive."""

LOOK_AGAIN_S = 0.05
"""After leaving something to others an idle worker looks so soon whether it is still there."""

_JUMP_MS = 250.0
"""So much new work is told at once, not with the next renewal."""


class Neighbours:
    """One worker's account of them, and what it tells of itself. On the message loop's thread alone."""

    def __init__(self, name: str, holding: Holding[Any]) -> None:
        self.name = name
        self.alone = True
        self._holding = holding
        self._residents: Mapping[str, float] = {}
        self._told: tuple[frozenset[str], float] = (frozenset(), 0.0)
        self._look_at = float("inf")
        self._left = False

    def residents(self, models: Mapping[str, float]) -> None:
        """The models that the child has, with what the load of each took in seconds; none once it is gone."""
        self._residents = dict(models)

    @property
    def here(self) -> Mapping[str, float | None]:
        """The models that this worker has, loads or holds jobs of."""
        return {**dict.fromkeys(self._holding.models), **self._residents}

    def choose(self, plan: Plan, survey: Survey, now: float) -> Choice:
        """What of a plan to pull."""
        choice = choose(plan, survey, self.here)
        self._look_at = now + LOOK_AGAIN_S if choice.ring else float("inf")
        return choice

    def doubting(self, now: float) -> bool:
        """Whether to see if what was left to others has waited too long for them."""
        return now >= self._look_at

    def tell(self, delivery: Delivery, now: float) -> None:
        """Say what is here and hear whether there is anybody else. What cannot be said now goes with the next tick."""
        if self._left:
            return
        models, busy_ms = self.here, self._holding.busy_ms(now)
        try:
            self.alone = delivery.place(self.name, pack_place(models, busy_ms), LEASE_S) == 0
        except Exception as error:  # noqa: BLE001 - the message loop finds out by itself what ails the broker
            log.debug("place not told: %s", type(error).__name__)
            return
        self._told = frozenset(models), busy_ms

    def tell_changes(self, delivery: Delivery, now: float) -> None:
        """Say so at once if a pull brought what others should know of: a model that was not here, or much work."""
        if self.alone:
            return
        models, busy_ms = self._told
        if self._holding.busy_ms(now) > busy_ms + _JUMP_MS or not models.issuperset(self.here):
            self.tell(delivery, now)

    def leave(self, delivery: Delivery) -> None:
        """Say that we are gone, so that others take what we would have."""
        self._left = True
        try:
            delivery.place(self.name, b"", 0.0)
        except Exception as error:  # noqa: BLE001 - the lease ends by itself
            log.debug("leaving not told: %s", type(error).__name__)
