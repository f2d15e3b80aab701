"""Sequences wait for memory, make room and leave room."""

from __future__ import annotations

from collections.abc import Callable

from engine.engine import Engine
from engine.errors import EngineError
from engine.snapshot import Phase
from engine.types import Work
from tests.unit.engine.generating import Steps, generator, settled, state, texts
from tests.unit.engine.recorder import Recorder

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
