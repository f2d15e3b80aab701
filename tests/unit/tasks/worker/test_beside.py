"""Models that work beside the device keep nobody out who needs it: they have a room of their own."""

from __future__ import annotations

import pytest

from catalog.terms import Lane
from tasks.plan import Plan, Source
from tasks.queues import queue_names
from tasks.survey import Survey, Waiting
from tasks.worker.holding import Held, Holding
from tasks.worker.placement import choose
from tasks.worker.rooms import Limits, apart

LIMITS = Limits(pull_ms=2000.0, pull_jobs=80, lanes=2)
QUEUES = queue_names()


@pytest.fixture
def holding() -> Holding[None]:
    """A worker with a parser of documents beside its device and an encoder on it."""
    made: Holding[None] = Holding(LIMITS)
    made.child_ready(2)
    made.beside(["parser"])
    made.residents(["parser", "encoder"])
    return made


def add(holding: Holding[None], model: str, count: int, cost_ms: float) -> list[str]:
    ids = [f"{model}{len(holding)}-{n}" for n in range(count)]
    for key in ids:
        holding.add(Held(key, None, b"", Lane.INTERACTIVE, model, cost_ms))
    return ids


def room(plan: Plan) -> float:
    return max((section.room_ms for section in plan.sections), default=0.0)


def test_documents_in_hand_take_no_room_of_the_device(holding: Holding[None]) -> None:
    free = room(holding.plan(QUEUES, 0))
    add(holding, "parser", 20, 30_000.0)
    assert room(holding.plan(QUEUES, 0)) == free
    assert holding.open


def test_texts_of_the_device_fill_its_room_as_ever(holding: Holding[None]) -> None:
    add(holding, "encoder", 2, 30_000.0)
    assert not holding.open


def test_documents_that_run_leave_the_device_idle(holding: Holding[None]) -> None:
    for number, key in enumerate(add(holding, "parser", 2, 30_000.0)):
        holding.batch_started(number, [key], 120.0, now=0.0)
    assert holding.idle
    assert holding.wants(1.0)


def test_a_device_that_is_full_waits_as_ever_whatever_runs_beside_it(holding: Holding[None]) -> None:
    document = add(holding, "parser", 1, 30_000.0)
    texts = add(holding, "encoder", 2, 1_000.0)
    holding.batch_started("d", document, 120.0, now=0.0)
    for number, key in enumerate(texts):
        holding.batch_started(number, [key], 120.0, now=0.0)
    assert not holding.idle
    assert not holding.wants(0.1)
    assert holding.wants(0.9)


def test_a_stock_of_documents_is_bounded(holding: Holding[None]) -> None:
    taken = 0
    waiting = {("interactive.xl", "parser"): 1_000}
    for turn in range(200):
        survey = Survey((Waiting("interactive.xl", "parser", 1_000),))
        chosen = choose(holding.plan(QUEUES, turn), survey, {"parser", "encoder"}).plan
        plan, _ = apart(chosen, waiting, holding.absent)
        jobs = sum(min(section.jobs, 1) for section in plan.sections if _names(section.sources, "parser"))
        add(holding, "parser", jobs, 30_000.0)
        taken += jobs
    # Room for a quarter of the whole, of which each takes a thirty-second part.
    assert 8 <= taken <= 17


def _names(sources: tuple[Source, ...], model: str) -> bool:
    return any(source.models is not None and model in source.models for source in sources)


def test_what_was_beside_counts_anew_when_the_child_says_otherwise(holding: Holding[None]) -> None:
    add(holding, "parser", 2, 30_000.0)
    holding.beside([])
    holding.residents(["parser", "encoder"])
    assert not holding.open


def test_after_the_child_is_lost_nothing_is_beside(holding: Holding[None]) -> None:
    add(holding, "parser", 1, 500.0)
    assert [held.model for held in holding.child_lost(now=1.0)] == ["parser"]
    holding.child_ready(2)
    holding.residents(["parser"])
    assert holding.plan(QUEUES, 0).sections[0].room_ms == 2 * 2000.0 - 500.0
