"""What the host's cores do runs beside the device, and neither waits for the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from catalog.terms import Verb
from engine.adapters.base import Place
from engine.adapters.fake import FakeAdapter
from engine.adapters.fake_generator import FakeGeneratorAdapter
from engine.adapters.fake_parser import FakeParserAdapter
from engine.engine import Engine
from engine.errors import EngineError
from engine.snapshot import Reason
from engine.types import Batch, Outcome, Output, Work
from tests.unit.engine.recorder import PATIENCE_S, Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]
PARSER: dict[str, Any] = {"family": "fake_parser"}


class Gate:
    """Holds runs up until it is opened, and tells when one has come."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.reached = threading.Semaphore(0)

    def come(self) -> None:
        self.reached.release()
        assert self.open.wait(PATIENCE_S)

    def until(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.reached.acquire(timeout=PATIENCE_S)


def gated(monkeypatch: pytest.MonkeyPatch, family: type[FakeAdapter | FakeParserAdapter]) -> Gate:
    gate, run = Gate(), family.run

    def held(self: Any, batch: Batch) -> Sequence[Outcome]:
        gate.come()
        return run(self, batch)

    monkeypatch.setattr(family, "run", held)
    return gate


@pytest.fixture
def parsing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = gated(monkeypatch, FakeParserAdapter)
    yield gate
    gate.open.set()


@pytest.fixture
def encoding(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = gated(monkeypatch, FakeAdapter)
    yield gate
    gate.open.set()


@pytest.fixture
def document(now_work: MakeWork) -> MakeWork:
    return lambda *texts, **fields: now_work(*texts, **({"model": "p", "verb": Verb.EXTRACT} | fields))


def test_a_document_that_memory_does_not_last_for_gets_that_of_an_idle_model_of_the_hosts(
    make_engine: MakeEngine,
    recorder: Recorder,
    document: MakeWork,
    now_work: MakeWork,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = make_engine(
        {"p": PARSER, "idle": PARSER | {"bytes": 100}, "m": {"bytes": 100}}, host_bytes=1000, preload=("idle", "m")
    )
    recorder.until(lambda: bool(recorder.there) and set(recorder.there[-1]) == {"idle", "m"})
    run, left = FakeParserAdapter.run, 2

    def lacks(self: FakeParserAdapter, batch: Batch) -> Sequence[Outcome]:
        # Once the cleared device, then a model less.
        nonlocal left
        left -= 1
        if left >= 0:
            raise MemoryError
        return run(self, batch)

    monkeypatch.setattr(FakeParserAdapter, "run", lacks)
    work = document("one")
    engine.submit([work])
    assert isinstance(recorder.results(work)[0].outcomes[0], Output)
    evicted = {m.model: m.evicted for m in engine.snapshot().models if m.evicted}
    assert evicted == {"idle": {Reason.MEMORY: 1}}


def test_a_document_is_parsed(make_engine: MakeEngine, recorder: Recorder, document: MakeWork) -> None:
    engine = make_engine({"p": PARSER}, host_bytes=1000)
    work = document("one two\fthree", "four")
    engine.submit([work])
    first, second = recorder.results(work)[0].outcomes
    assert isinstance(first, Output)
    assert [page["words"] for page in first.fields["data"]["pages"]] == [["one", "two"], ["three"]]
    assert isinstance(second, Output)


def test_a_slow_parse_does_not_delay_an_embedding(
    make_engine: MakeEngine, recorder: Recorder, document: MakeWork, now_work: MakeWork, parsing: Gate
) -> None:
    engine = make_engine({"p": PARSER, "m": {}})
    slow = document("a")
    engine.submit([slow])
    parsing.until()
    embeddings = [now_work() for _ in range(20)]
    engine.submit(embeddings)
    recorder.results(*embeddings)
    assert slow.id not in recorder.done
    parsing.open.set()
    recorder.results(slow)


def test_a_slow_parse_does_not_delay_a_text_that_the_host_generates(
    make_engine: MakeEngine,
    recorder: Recorder,
    document: MakeWork,
    now_work: MakeWork,
    parsing: Gate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeGeneratorAdapter, "place", Place.HOST)
    engine = make_engine({"p": PARSER, "g": {"family": "fake_generator"}}, host_bytes=10_000, batch_items=1)
    slow = [document("a"), document("b")]
    engine.submit(slow)
    parsing.until()
    text = now_work("say", model="g", verb=Verb.GENERATE)
    engine.submit([text])
    assert isinstance(recorder.results(text)[0].outcomes[0], Output)
    assert not parsing.reached.acquire(blocking=False), "a second document took the lane that is kept for steps"
    assert not recorder.done.keys() & {work.id for work in slow}
    parsing.open.set()
    recorder.results(*slow)


def test_a_slow_embedding_does_not_delay_a_parse(
    make_engine: MakeEngine, recorder: Recorder, document: MakeWork, now_work: MakeWork, encoding: Gate
) -> None:
    engine = make_engine({"p": PARSER, "m": {}})
    slow = now_work()
    engine.submit([slow])
    encoding.until()
    documents = [document(str(n)) for n in range(20)]
    engine.submit(documents)
    recorder.results(*documents)
    assert slow.id not in recorder.done
    encoding.open.set()
    recorder.results(slow)


def test_as_many_parses_run_at_once_as_there_are_host_lanes(
    make_engine: MakeEngine, recorder: Recorder, document: MakeWork, parsing: Gate
) -> None:
    engine = make_engine({"p": PARSER}, host_lanes=3, batch_items=1)
    works = [document(str(n)) for n in range(6)]
    engine.submit(works)
    parsing.until(3)
    assert engine.snapshot().running == 3
    assert not parsing.reached.acquire(blocking=False)
    parsing.open.set()
    recorder.results(*works)


def test_a_parser_is_leased_while_it_parses(
    make_engine: MakeEngine, recorder: Recorder, document: MakeWork, parsing: Gate
) -> None:
    engine = make_engine({"p": {**PARSER, "page_bytes": 7, "bytes": 100, "max_length": 8}}, host_bytes=1000)
    work = document("a\fb", lengths=[2])
    engine.submit([work])
    parsing.until()
    (state,) = engine.snapshot().models
    assert (state.leases, state.activations) == (1, 14)
    parsing.open.set()
    recorder.results(work)
    assert engine.drain(PATIENCE_S)
    (state,) = engine.snapshot().models
    assert (state.leases, state.activations) == (0, 0)


def test_batches_of_both_places_have_numbers_of_their_own(
    make_engine: MakeEngine, recorder: Recorder, document: MakeWork, now_work: MakeWork
) -> None:
    engine = make_engine({"p": PARSER, "m": {}}, batch_items=1)
    works = [*(document(str(n)) for n in range(10)), *(now_work() for _ in range(10))]
    engine.submit(works)
    recorder.results(*works)
    assert len({batch.id for batch in recorder.started}) == 20


def test_a_poisoned_document_fails_alone(make_engine: MakeEngine, recorder: Recorder, document: MakeWork) -> None:
    engine = make_engine({"p": {**PARSER, "faults": [{"kind": "error", "when_text": "poison"}]}})
    work = document("a", "poison", "b")
    engine.submit([work])
    outcomes = recorder.results(work)[0].outcomes
    assert [o.code if isinstance(o, EngineError) else "" for o in outcomes] == ["", "model_failed", ""]


def test_a_document_alone_has_nothing_beside_it_on_device_or_host(
    make_engine: MakeEngine, recorder: Recorder, document: MakeWork, now_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, running, beside = threading.Lock(), set[str](), list[set[str]]()

    def watched(run: Callable[..., Sequence[Outcome]]) -> Callable[..., Sequence[Outcome]]:
        def step(self: Any, batch: Batch) -> Sequence[Outcome]:
            name = f"{batch.id} {'alone' if batch.alone else ''}"
            with lock:
                running.add(name)
                beside.append(set(running))
            try:
                return run(self, batch)
            finally:
                with lock:
                    running.remove(name)

        return step

    for family in (FakeAdapter, FakeParserAdapter):
        monkeypatch.setattr(family, "run", watched(family.run))
    parser = {**PARSER, "page_seconds": 0.001}
    engine = make_engine({"p": parser, "m": {"seconds_per_cost": 0.0001}}, lanes=2, host_lanes=2, batch_items=1)
    documents = [document("a", alone=n % 3 == 0, caller=str(n)) for n in range(12)]
    embeddings = [now_work(alone=n % 4 == 0, caller=str(n)) for n in range(24)]
    engine.submit([*documents, *embeddings])
    recorder.results(*documents, *embeddings)
    assert [names for names in beside if len(names) > 1 and any("alone" in name for name in names)] == []
    assert max(len(names) for names in beside) > 1


def test_a_document_alone_is_not_kept_waiting_by_what_comes_for_the_device_meanwhile(
    make_engine: MakeEngine, recorder: Recorder, document: MakeWork, now_work: MakeWork, encoding: Gate
) -> None:
    engine = make_engine({"p": PARSER, "m": {}}, lanes=2)
    warm, running = document("warm"), now_work()
    engine.submit([warm, running])
    recorder.results(warm)
    encoding.until()
    alone = document("alone", alone=True)
    engine.submit([alone])
    while not engine._lanes[Place.HOST].scheduler.holding:
        assert not engine.drain(0.001)
    later = now_work()
    engine.submit([later])
    assert not encoding.reached.acquire(timeout=0.05)
    encoding.open.set()
    recorder.results(running, alone, later)
    order = [batch.entries[0].work for batch in recorder.started if batch.entries[0].work is not warm]
    assert order == [running, alone, later]


def test_what_is_cancelled_or_handed_back_is_not_parsed(
    make_engine: MakeEngine, recorder: Recorder, document: MakeWork, parsing: Gate
) -> None:
    engine = make_engine({"p": PARSER}, batch_items=1)
    running, cancelled, waiting = document("a"), document("b"), document("c")
    engine.submit([running])
    parsing.until()
    engine.submit([cancelled, waiting])
    assert engine.cancel([cancelled.id]) == [cancelled.id]
    assert engine.hand_back() == [waiting.id]
    parsing.open.set()
    recorder.results(running)
    assert engine.drain(PATIENCE_S)
    assert set(recorder.done) == {running.id}
