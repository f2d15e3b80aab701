"""Batches follow what is known of their cost, and teach it; models that pad nothing; threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.loader import Catalog
from catalog.schema import CostCoefficients, Spec
from catalog.terms import Verb
from engine.adapters.fake import FakeAdapter
from engine.costs import CostBook, Pass, Ran
from engine.device import CpuDevice, FakeDevice
from engine.engine import Engine, EngineLimits
from engine.snapshot import ModelState
from engine.types import Batch, Outcome, Work
from tests.unit.engine.recorder import PATIENCE_S, Recorder

MakeWork = Callable[..., Work]
MakeSpec = Callable[..., Spec]
MakeEngine = Callable[..., Engine]

DEAR = CostCoefficients(base=1.0, per_token=1.0)


class Book(CostBook):
    """Keeps what it is told, and answers as it is set to."""

    def __init__(self, tokens: int | None = None) -> None:
        super().__init__("fake")
        self.told: list[Ran] = []
        self.tokens = tokens

    def batch_tokens(self, model: str, least: int, most: int) -> int | None:
        return self.tokens

    def observe(self, ran: Ran, spec: Spec) -> None:
        self.told.append(ran)


def run(book: CostBook, specs: Sequence[Spec], works: Sequence[Work], recorder: Recorder, **limits: Any) -> ModelState:
    """Run works to their end in an engine with this book; the first model's state then."""
    values: dict[str, Any] = {"budget_bytes": 1000, "lanes": 1} | limits
    engine = Engine(Catalog(specs), FakeDevice(), EngineLimits(**values), recorder, find=lambda _: None, costs=book)
    engine.submit(works)
    engine.start()
    try:
        recorder.results(*works)
        assert engine.drain(PATIENCE_S)
        return engine.snapshot().models[0]
    finally:
        engine.stop(timeout_s=0.5)


def sizes(recorder: Recorder) -> list[int]:
    return [len(batch.entries) for batch in recorder.started]


def test_every_good_pass_teaches_the_cost_book(make_spec: MakeSpec, make_work: MakeWork, recorder: Recorder) -> None:
    book = Book()
    state = run(book, [make_spec(cost=DEAR)], [make_work(lengths=[10, 9, 8])], recorder, batch_items=2)
    assert [(ran.model, ran.kind, sorted(ran.lengths), ran.padded, ran.crowded) for ran in book.told] == [
        ("m", Pass.RUN, [9, 10], True, False),
        ("m", Pass.RUN, [8], True, False),
    ]
    assert state.work is not None
    assert (state.work.passes, state.work.items, state.work.real_tokens) == (2, 3, 27)
    assert state.work.predicted_s == pytest.approx((DEAR.batch(2, 10) + DEAR.batch(1, 8)) / 1000)


def test_a_pass_with_a_fault_in_it_teaches_nothing(
    make_spec: MakeSpec, make_work: MakeWork, recorder: Recorder
) -> None:
    book = Book()
    spec = make_spec(faults=[{"kind": "error", "when_text": "poison"}])
    run(book, [spec], [make_work("a", "poison", "b")], recorder)
    assert book.told == []


def test_items_that_could_not_be_read_teach_nothing(
    make_spec: MakeSpec, make_work: MakeWork, recorder: Recorder
) -> None:
    book = Book()
    works = [make_work("one two three four", lengths=[9])]
    works.append(make_work(*[7, 7], lengths=[5, 5]))  # no texts
    run(book, [make_spec()], works, recorder)
    assert [list(ran.lengths) for ran in book.told] == [[9]]


def test_the_size_that_has_proved_the_quickest_bounds_a_batch(
    make_spec: MakeSpec, make_work: MakeWork, recorder: Recorder
) -> None:
    run(Book(tokens=40), [make_spec(cost=DEAR)], [make_work(lengths=[10] * 8)], recorder)
    assert sizes(recorder) == [4, 4]


def test_a_size_that_the_operator_sets_wins(make_spec: MakeSpec, make_work: MakeWork, recorder: Recorder) -> None:
    works = [make_work(lengths=[10] * 8)]
    run(Book(tokens=40), [make_spec(cost=DEAR)], works, recorder, batch_tokens=20)
    assert sizes(recorder) == [2] * 4


def test_a_model_that_pads_nothing_takes_any_lengths_in_one_batch(
    make_spec: MakeSpec, make_work: MakeWork, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeAdapter, "unpadded", True)
    book = Book()
    spec = make_spec(cost=DEAR, activation_bytes=1, max_length=300)
    state = run(book, [spec], [make_work(lengths=[200, 3, 60, 30, 7])], recorder, batch_tokens=300)
    assert sizes(recorder) == [5]
    assert state.work is not None
    assert (state.work.real_tokens, state.work.padded_tokens) == (300, 300)
    assert state.work.predicted_s == pytest.approx((1.0 + 300.0) / 1000)
    assert not book.told[0].padded
    assert recorder.ended[0].computed == 300


def test_the_same_lengths_are_kept_apart_where_the_model_pads(
    make_spec: MakeSpec, make_work: MakeWork, recorder: Recorder
) -> None:
    run(Book(), [make_spec(cost=DEAR)], [make_work(lengths=[200, 3, 60, 30, 7])], recorder, batch_tokens=300)
    assert len(recorder.started) > 3


def test_passes_side_by_side_are_told_to_be_crowded(
    make_spec: MakeSpec, make_work: MakeWork, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, real = threading.Barrier(2), FakeAdapter.run

    def together(self: FakeAdapter, batch: Batch) -> Sequence[Outcome]:
        both.wait(PATIENCE_S)
        return real(self, batch)

    monkeypatch.setattr(FakeAdapter, "run", together)
    book = Book()
    run(book, [make_spec()], [make_work(), make_work()], recorder, lanes=2, batch_items=1)
    assert [ran.crowded for ran in book.told] == [True, True]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that torch was told to take, call by call, where no pass counts as short."""
    told: list[int] = []
    monkeypatch.setattr("engine.lanes.SHORT_MS", 0.0)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=told.append))
    return told


@pytest.fixture
def cores() -> CpuDevice:
    device = CpuDevice()
    device.cores = 4
    return device


def test_a_batch_that_is_alone_takes_all_cores_though_others_wait_for_a_load(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, threads: list[int], cores: CpuDevice
) -> None:
    slow = {"load_seconds": 600.0}
    engine = make_engine({"m": {}, "slow": slow}, device=cores, lanes=2, budget_bytes=2**20, loaders=2)
    waiting = now_work(model="slow")
    engine.submit([waiting])
    recorder.until(lambda: "slow" in recorder.loading)
    alone = now_work()
    engine.submit([alone])
    recorder.results(alone)
    assert threads == [4]


def test_a_batch_that_comes_while_another_has_all_cores_takes_its_share(
    make_engine: MakeEngine,
    recorder: Recorder,
    now_work: MakeWork,
    threads: list[int],
    cores: CpuDevice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hooked: list[int] = []
    monkeypatch.setattr(FakeAdapter, "use_threads", lambda self, count: hooked.append(count))
    go = threading.Event()
    real = FakeAdapter.run

    def held(self: FakeAdapter, batch: Batch) -> Sequence[Outcome]:
        if len(recorder.started) == 1:
            assert go.wait(PATIENCE_S)
        return real(self, batch)

    monkeypatch.setattr(FakeAdapter, "run", held)
    engine = make_engine(device=cores, lanes=2, budget_bytes=2**20)
    first, second = now_work(), now_work()
    engine.submit([first])
    recorder.until(lambda: len(recorder.started) == 1)
    while not threads:
        assert not engine.drain(0.001)
    engine.submit([second])
    recorder.until(lambda: len(recorder.started) == 2)
    go.set()
    recorder.results(first, second)
    assert threads == hooked == [4, 2]


def test_a_step_that_is_alone_takes_all_cores_and_shares_them_beside_embeddings(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, threads: list[int], cores: CpuDevice
) -> None:
    engine = make_engine(
        {"g": {"family": "fake_generator", "new_tokens": 3}}, device=cores, lanes=2, budget_bytes=2**20
    )
    work = now_work("one", model="g", verb=Verb.GENERATE)
    engine.submit([work])
    recorder.results(work)
    assert threads == [4, 4, 4]
