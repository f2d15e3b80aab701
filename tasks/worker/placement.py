"""Which models' messages a worker pulls when it is not alone: those of models that it has before others. Pure.

A model that no live worker has is for whoever is idle first. One that others have is left to them, unless waiting there
would be slower than a load here. So a hot model spreads over devices and a cold one stays on one. Nothing waits for
ever: what had no turn for a while comes first, whoever has its model.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from tasks import keys
from tasks.plan import Plan, Section, Source
from tasks.queues import TYPICAL_MS, split
from tasks.survey import Choice, Place, Survey, Waiting

PATIENCE_S = 5.0
"""A model without a turn for so long goes before those that a worker has."""

UNKNOWN_LOAD_S = 5.0
"""What a load is taken for while nobody has said how long it takes."""

LEAST_LOAD_S = 1.0
"""No load is taken for shorter: room is made for it, and it may push out another model."""


class Claim(IntEnum):
    """How good a claim this worker has to a model's messages, the best first."""

    LATE = 0
    HERE = 1
    NOWHERE = 2
    SLOW_ELSEWHERE = 3
    NONE = 4


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """What is known of a model that other workers have: the least busy of them, how many, and what a load takes."""

    busy_ms: float
    homes: int
    load_ms: float


def choose(plan: Plan, survey: Survey, here: Container[str], declined: Container[str] = ()) -> Choice:
    """The plan by model: in each lane the best claims first, the buckets in the plan's order among equal claims.

    `here` are the models that this worker has, loads or holds jobs of; `declined` those that it cannot have now, which
    are left to others unless all decline them: then whoever comes may fail their jobs with the reason. A queue that is
    not one of jobs stays as it is.
    """
    backlog_ms = _backlogs(survey)
    waiting: dict[str, list[Waiting]] = {}
    for one in sorted(survey.waiting, key=lambda one: -one.unserved_s):
        waiting.setdefault(one.queue, []).append(one)
    elsewhere: dict[str, _Elsewhere | None] = {}
    left: dict[str, None] = {}
    sections = []
    for section in plan.sections:
        groups: dict[Claim, list[Source]] = {claim: [] for claim in Claim}
        for source in section.sources:
            by_claim: dict[Claim, list[str]] = {}
            for one in waiting.get(source.queue, ()):
                if one.model in declined and any(one.model not in place.declined for place in survey.places):
                    claim = Claim.NONE
                else:
                    if one.model not in elsewhere:
                        elsewhere[one.model] = _elsewhere(one.model, survey.places)
                    claim = _claim(one, one.model in here, elsewhere[one.model], backlog_ms.get(one.model, 0.0))
                by_claim.setdefault(claim, []).append(one.model)
            for claim, models in by_claim.items():
                groups[claim].append(replace(source, models=tuple(models)))
        for source in groups.pop(Claim.NONE):
            left |= dict.fromkeys(source.models or ())
        if sources := tuple(source for group in groups.values() for source in group):
            sections.append(Section(sources, section.room_ms, section.jobs, section.least))
    ring = dict.fromkeys(place.worker for model in left for place in _left_to(model, survey.places))
    return Choice(Plan(tuple(sections), plan.cap_ms, plan.most), tuple(keys.own_bell(worker) for worker in ring))


def _claim(one: Waiting, here: bool, elsewhere: _Elsewhere | None, backlog_ms: float) -> Claim:
    if not one.model:
        # Of an earlier version or another publisher: none is better placed for it than another.
        return Claim.HERE
    if here or elsewhere is None:
        if one.unserved_s > PATIENCE_S:
            return Claim.LATE
        return Claim.HERE if here else Claim.NOWHERE
    # Later than where the model is: there it comes first too, and needs no load.
    if one.unserved_s > PATIENCE_S + max(PATIENCE_S, elsewhere.load_ms / 1000):
        return Claim.LATE
    # What waits for the last of them, before its own turn.
    wait_ms = elsewhere.busy_ms + (backlog_ms - _typical_ms(one.queue)) / elsewhere.homes
    return Claim.SLOW_ELSEWHERE if wait_ms > elsewhere.load_ms else Claim.NONE


def _backlogs(survey: Survey) -> dict[str, float]:
    """Milliseconds of work that wait for each model, by the typical cost of their buckets."""
    backlog: dict[str, float] = {}
    for one in survey.waiting:
        backlog[one.model] = backlog.get(one.model, 0.0) + one.count * _typical_ms(one.queue)
    return backlog


def _typical_ms(queue: str) -> float:
    try:
        return TYPICAL_MS[split(queue)[1]]
    except ValueError:
        return 0.0


def _elsewhere(model: str, places: Sequence[Place]) -> _Elsewhere | None:
    homes = _homes(model, places)
    if not homes:
        return None
    said = [load_s for place in homes if (load_s := place.models[model]) is not None]
    load_s = max(LEAST_LOAD_S, max(said) if said else UNKNOWN_LOAD_S)
    return _Elsewhere(min(place.busy_ms for place in homes), len(homes), load_s * 1000)


def _homes(model: str, places: Sequence[Place]) -> list[Place]:
    return [place for place in places if model in place.models and model not in place.declined]


def _left_to(model: str, places: Sequence[Place]) -> list[Place]:
    """Who should take what this worker leaves: those that have the model, else all that could."""
    return _homes(model, places) or [place for place in places if model not in place.declined]
