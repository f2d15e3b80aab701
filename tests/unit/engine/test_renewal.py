"""A model whose definition in the catalog changes while an engine runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from catalog.loader import Catalog
from engine.device import FakeDevice
from engine.engine import Engine
from engine.eviction import EvictionPolicy
from engine.limits import EngineLimits
from engine.residency import Residency
from engine.snapshot import Phase, Reason
from tests.unit.engine.conftest import MakeSpec, MakeWork
from tests.unit.engine.recorder import PATIENCE_S, Recorder
from tests.unit.engine.watching import MakeResidency, Watching, state


class Changing:
    """A catalog whose models are put in by the test."""

    def __init__(self, *specs: Any) -> None:
        self.now = Catalog(specs)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.now.keys

    def find(self, name: str, /) -> Any:
        return self.now.find(name)


@pytest.fixture
def renewing(make_spec: MakeSpec, watching: Watching) -> Iterator[tuple[Changing, Residency]]:
    catalog = Changing(make_spec("a", bytes=300), make_spec("b", bytes=100))
    residency = Residency(
        catalog,
        FakeDevice(),
        1000,
        watching,
        clock=time.monotonic,
        floor_tokens=10,
        policy=EvictionPolicy(min_stay_s=0.0),
        find=lambda _: None,
        find_here=lambda _: None,
    )
    residency.start(1)
    yield catalog, residency
    residency.stop(1.0)


def test_an_idle_model_leaves_and_comes_back_as_it_is_defined_now(
    renewing: tuple[Changing, Residency], make_spec: MakeSpec, watching: Watching
) -> None:
    catalog, residency = renewing
    residency.acquire("a", PATIENCE_S)
    residency.release("a")
    catalog.now = Catalog([make_spec("a", bytes=400)])
    residency.renew("a")
    watching.until("left", "a")
    residency.acquire("a", PATIENCE_S)
    found = state(residency, "a")
    assert (found.bytes, found.loads, found.evicted) == (400, 2, {Reason.CHANGED: 1})


def test_a_held_model_runs_to_its_end_and_is_lent_to_nobody_meanwhile(
    renewing: tuple[Changing, Residency], make_spec: MakeSpec, watching: Watching
) -> None:
    catalog, residency = renewing
    before = residency.acquire("a", PATIENCE_S)
    catalog.now = Catalog([make_spec("a", bytes=400)])
    residency.renew("a")
    assert residency.lease("a") is None
    assert state(residency, "a").phase is Phase.RESIDENT
    residency.want("a")
    residency.release("a")
    assert residency.acquire("a", PATIENCE_S) is not before
    assert state(residency, "a").bytes == 400


def test_a_model_that_failed_may_be_tried_at_once_by_its_new_definition(
    renewing: tuple[Changing, Residency], make_spec: MakeSpec, watching: Watching
) -> None:
    catalog, residency = renewing
    catalog.now = Catalog([make_spec("a", bytes="many")])
    residency.want("a")
    watching.until("refused", "a")
    assert residency.refusal("a") is not None
    catalog.now = Catalog([make_spec("a", bytes=50)])
    residency.renew("a")
    assert residency.refusal("a") is None
    residency.acquire("a", PATIENCE_S)
    assert state(residency, "a").bytes == 50


def test_a_model_that_nobody_asked_for_is_none_the_wiser(renewing: tuple[Changing, Residency]) -> None:
    _, residency = renewing
    residency.renew("b")
    assert residency.snapshot()[0] == ()


def test_a_model_that_was_too_large_is_not_refused_for_that_any_more(
    renewing: tuple[Changing, Residency], make_spec: MakeSpec, watching: Watching
) -> None:
    catalog, residency = renewing
    catalog.now = Catalog([make_spec("a", bytes=2000)])
    residency.want("a")
    watching.until("refused", "a")
    catalog.now = Catalog([make_spec("a", bytes=20)])
    residency.renew("a")
    residency.acquire("a", PATIENCE_S)
    assert state(residency, "a").bytes == 20


def test_a_parked_model_is_not_brought_back_as_it_was(
    make_residency: MakeResidency, make_spec: MakeSpec, watching: Watching
) -> None:
    residency = make_residency({"a": {"bytes": 600, "parks": True}, "b": {"bytes": 600}}, host_bytes=1000)
    for model in ("a", "b"):
        residency.acquire(model, PATIENCE_S)
        residency.release(model)
    watching.until("left", "a")
    residency.renew("a")
    residency.acquire("a", PATIENCE_S)
    assert (state(residency, "a").loads, state(residency, "a").restores) == (2, 0)


def test_works_run_by_what_is_defined_when_their_model_comes(
    make_spec: MakeSpec, recorder: Recorder, now_work: MakeWork
) -> None:
    catalog = Changing(make_spec("m", bytes=10))
    engine = Engine(catalog, FakeDevice(), EngineLimits(budget_bytes=1000, lanes=1), recorder, find=lambda _: None)
    engine.start()
    try:
        first, second = now_work("one", id="1"), now_work("two", id="2")
        engine.submit([first])
        recorder.results(first)
        catalog.now = Catalog([make_spec("m", bytes=20)])
        engine.renew(["m"])
        engine.submit([second])
        recorder.results(second)
        assert engine.snapshot().ledger.weights == 20
        catalog.now = Catalog([])
        engine.renew(["m"])
        assert engine.snapshot().models
    finally:
        engine.stop(timeout_s=0.2)
