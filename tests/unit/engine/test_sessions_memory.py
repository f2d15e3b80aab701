"""Sequences wait for memory, make room and leave room."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from engine import joining
from engine.adapters.fake import FakeAdapter
from engine.engine import Engine
from engine.errors import EngineError
from engine.snapshot import Phase
from engine.types import Batch, Finished, Work
from tests.unit.engine.generating import Steps, generator, settled, state, texts
from tests.unit.engine.recorder import PATIENCE_S, Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]


def test_a_sequence_waits_until_the_others_leave_it_memory(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=9, cache_bytes=30, bytes=100)})
    works = [prompt(f"p{n}") for n in range(7)]
    engine.submit(works)
    recorder.results(*works)
    assert max(len(step) for step in steps.log) == 3
    assert settled(engine)


def test_a_sequence_that_never_fits_fails_alone_and_says_so(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=9, cache_bytes=30, bytes=100)})
    huge, good = prompt("huge " * 100), prompt("good")
    engine.submit([huge, good])
    (outcome,) = recorder.results(huge)[0].outcomes
    assert isinstance(outcome, EngineError)
    assert outcome.code == "out_of_memory"
    assert "3270 bytes" in outcome.message
    assert len(texts(recorder, good)[0].split()) == 9
    assert settled(engine)


def test_an_idle_model_makes_room_for_a_sequence(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork
) -> None:
    engine = make_engine({"g": generator(new_tokens=9, cache_bytes=50, bytes=100), "m": {"bytes": 600}})
    embedding = now_work()
    engine.submit([embedding])
    recorder.results(embedding)
    work = prompt("one")
    engine.submit([work])
    assert len(texts(recorder, work)[0].split()) == 9
    assert state(engine, "m").evictions == 1


def test_caches_leave_room_for_the_batches_of_others(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork, steps: Steps
) -> None:
    models = {
        "g": generator(new_tokens=9, cache_bytes=10, bytes=100),
        "m": {"bytes": 100, "activation_bytes": 1, "max_length": 500},
    }
    engine = make_engine(models)
    first = now_work()
    engine.submit([first])
    recorder.results(first)
    steps.hold()
    works = [prompt(f"p{n}") for n in range(9)]
    engine.submit(works)
    steps.until(1)
    assert engine.snapshot().ledger.lent == 300
    embedding = now_work(lengths=[500])
    engine.submit([embedding])
    steps.go(1)
    recorder.results(embedding)
    steps.go(None)
    recorder.results(*works)


def test_a_model_with_sequences_stays_and_takes_no_more_once_another_needs_its_room(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=300, bytes=600), "m": {"bytes": 600}})
    steps.hold()
    first, second = prompt("first"), prompt("second")
    engine.submit([first])
    steps.until(1)
    steps.go(2)
    steps.until(3)
    assert state(engine).leases == 1
    other = now_work()
    engine.submit([other])
    while state(engine).phase is not Phase.LEAVING:
        steps.go(1)
        assert not engine.drain(0.001)
    engine.submit([second])
    steps.go(None)
    recorder.results(first, other, second)
    joined = [len(step) for step in steps.log]
    assert max(joined) == 1
    assert state(engine).loads == 2


def test_an_idle_model_makes_room_for_a_sequence_though_a_batch_elsewhere_goes_on(
    make_engine: MakeEngine,
    recorder: Recorder,
    prompt: MakeWork,
    now_work: MakeWork,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, goes, generated = FakeAdapter.run, threading.Event(), threading.Event()

    def held(self: FakeAdapter, batch: Batch) -> Any:
        if batch.model == "m":
            goes.set()
            assert generated.wait(PATIENCE_S)
        return run(self, batch)

    monkeypatch.setattr(FakeAdapter, "run", held)
    monkeypatch.setattr(joining, "LOOK_S", 0.05)
    models = {
        "g": generator(new_tokens=9, cache_bytes=50, bytes=100),
        "m": {"bytes": 100, "activation_bytes": 1, "max_length": 10},
        "idle": {"bytes": 400},
    }
    engine = make_engine(models, lanes=2)
    first, batch = now_work(model="idle"), now_work()
    engine.submit([first])
    recorder.results(first)
    engine.submit([batch])
    assert goes.wait(PATIENCE_S)
    work = prompt("one")
    engine.submit([work])
    assert len(texts(recorder, work)[0].split()) == 9
    generated.set()
    recorder.results(batch)
    assert state(engine, "idle").evictions == 1


def test_small_sequences_of_another_model_let_a_large_one_by(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "LOOK_S", 0.05)
    models = {
        "g": generator(new_tokens=9, cache_bytes=50, bytes=100),
        "h": generator(new_tokens=19, cache_bytes=10, bytes=100, step_seconds=0.001),
    }
    engine = make_engine(models)
    tell = recorder.finished

    def again(done: Sequence[Finished]) -> None:
        tell(done)
        if large.id not in recorder.done:
            engine.submit([prompt("again", model="h") for one in done if one.work.model == "h"])

    monkeypatch.setattr(recorder, "finished", again)
    large = prompt("large")
    engine.submit([prompt("small", model="h")])
    steps.until(5)
    engine.submit([prompt("small", model="h"), prompt("small", model="h")])
    steps.until(10)
    engine.submit([large])
    assert len(texts(recorder, large)[0].split()) == 9
    assert settled(engine)
    assert steps.caches == 0


def test_of_two_models_whose_only_sequences_wait_for_memory_the_later_gives_way(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "LOOK_S", 0.05)
    load = {"bytes": 300, "cache_bytes": 10, "new_tokens": 19}
    engine = make_engine({"g": generator(**load), "h": generator(**load)})
    # Both models and a large sequence of either take 1050 bytes of a thousand.
    small, large = prompt("small", model="h"), [prompt("large " * 26, model=model) for model in ("h", "g")]
    steps.hold()
    engine.submit([small])
    steps.until(1)
    engine.submit(large)
    steps.go(None)
    assert [len(texts(recorder, work)[0].split()) for work in large] == [19, 19]
    assert settled(engine)
