"""What a worker and the others on the same queues tell each other: where models are, and who is how busy.

It goes through Valkey, under a lease that is renewed several times over its length: a worker that dies is soon nobody's
reason to leave a message alone. What is told is a hint for the next pulls; a stale one costs a load or a wait.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from catalog.hub import is_pinned
from tasks import keys
from tasks.plan import Plan
from tasks.survey import Choice, Survey, pack_place
from tasks.worker.delivery import Delivery
from tasks.worker.holding import Holding
from tasks.worker.placement import choose
from tasks.worker.rooms import apart

log = logging.getLogger(__name__)

LEASE_S = 3.0
"""For so long a worker that says nothing is believed to be alive."""

LOOK_AGAIN_S = 0.05
"""After leaving something to others an idle worker looks so soon whether it is still there."""

LOOK_EACH_S = 0.0005
"""So much later for each list that waits, many times what the look at it takes: idle workers must not fill the broker's
time with looking. At the most, 128 models in each of ten queues, that is 0.64 s."""

FAILED_S = 5.0
"""A model that could not be had is left to others for so long, and then for as long as the child says so."""

_JUMP_MS = 250.0
"""So much new work is told at once, not with the next renewal."""


class Neighbours:
    """One worker's account of them, and what it tells of itself. On the message loop's thread alone."""

    def __init__(self, name: str, holding: Holding[Any]) -> None:
        self.name = name
        self.alone = True
        self._holding = holding
        self._residents: Mapping[str, float] = {}
        self._known: frozenset[str] | None = None
        self._more = False
        self._unable: frozenset[str] = frozenset()
        self._failed: dict[str, float] = {}
        self._declined: frozenset[str] = frozenset()
        self._told: tuple[frozenset[str], frozenset[str], float] = (frozenset(), frozenset(), 0.0)
        self._look_at = float("inf")
        self._left = False
        self._without_room = 0

    def residents(self, models: Mapping[str, float]) -> None:
        """The models that the child has, with what the load of each took in seconds; none once it is gone."""
        self._residents = dict(models)

    def knows(self, models: Iterable[str], *, more: bool = False) -> None:
        """The models of the child's catalog. Until it says so, all are taken for known.

        With `more` it also knows those that no YAML names. What it cannot have now is said after it.
        """
        self._known, self._more, self._unable = frozenset(models), more, frozenset()

    def unable(self, models: Iterable[str]) -> None:
        """The models that the child cannot have now: too large for its device, or cooling down after a failure."""
        self._unable = frozenset(models)

    def failed(self, model: str, now: float) -> None:
        """A job ended because its model could not be had here."""
        self._failed = {other: until for other, until in self._failed.items() if until > now}
        self._failed[model] = now + FAILED_S

    def declines(self, model: str, now: float) -> bool:
        """Whether this worker cannot have the model now, so that its jobs would fail here."""
        if model in self._residents:
            return False
        unknown = self._known is not None and model not in self._known and not (self._more and is_pinned(model))
        return unknown or model in self._unable or self._failed.get(model, now) > now

    @property
    def here(self) -> Mapping[str, float | None]:
        """The models that this worker has, loads or holds jobs of."""
        return {**dict.fromkeys(self._holding.models), **self._residents}

    def choose(self, plan: Plan, survey: Survey, now: float) -> Choice:
        """What of a plan to pull."""
        waiting = {one.model for one in survey.waiting if one.model}
        self._declined = frozenset(model for model in waiting if self.declines(model, now))
        choice = choose(plan, survey, self.here, self._declined)
        pause_s = LOOK_AGAIN_S + LOOK_EACH_S * len(survey.waiting)
        self._look_at = now + pause_s if choice.ring else float("inf")
        counts = {(one.queue, one.model): one.count for one in survey.waiting}
        before = self._without_room
        plan, self._without_room = apart(choice.plan, counts, self._holding.absent)
        # A bell that we heard may have been for more than we have room for. Not again for the same messages: what the
        # others leave comes back to us.
        ring = [keys.own_bell(place.worker) for place in survey.places] if self._without_room > before else []
        return Choice(plan, tuple(dict.fromkeys((*choice.ring, *ring))))

    def doubting(self, now: float) -> bool:
        """Whether to see if what was left to others has waited too long for them."""
        return now >= self._look_at

    def tell(self, delivery: Delivery, now: float) -> None:
        """Say what is here and hear whether there is anybody else. What cannot be said now goes with the next tick."""
        if self._left:
            return
        models, declined, busy_ms = self._models, self._declined, self._holding.busy_ms(now)
        try:
            self.alone = delivery.place(self.name, pack_place(models, busy_ms, declined), LEASE_S) == 0
        except Exception as error:  # noqa: BLE001 - the message loop finds out by itself what ails the broker
            log.debug("place not told: %s", type(error).__name__)
            return
        self._told = frozenset(models), declined, busy_ms

    def tell_changes(self, delivery: Delivery, now: float) -> None:
        """Say so at once if a pull brought what others should know of: a model that was not here, or much work.

        Or one that this worker declines: the others must know whether anybody is left that could take it.
        """
        if self.alone:
            return
        models, declined, busy_ms = self._told
        more_work = self._holding.busy_ms(now) > busy_ms + _JUMP_MS
        if more_work or not models.issuperset(self._models) or not declined.issuperset(self._declined):
            self.tell(delivery, now)

    def leave(self, delivery: Delivery) -> None:
        """Say that we are gone, so that others take what we would have."""
        self._left = True
        try:
            delivery.place(self.name, b"", 0.0)
        except Exception as error:  # noqa: BLE001 - the lease ends by itself
            log.debug("leaving not told: %s", type(error).__name__)

    @property
    def _models(self) -> Mapping[str, float | None]:
        """What is told. Nothing while there is no child: what waits must not wait for one that has yet to start."""
        return self.here if self._holding.ready else {}
