"""Sessions beside loads: neither waits for the other for ever, and both come to their end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from engine.adapters.base import Place
from engine.adapters.fake_generator import FakeGeneratorAdapter
from engine.engine import Engine
from engine.eviction import EvictionPolicy
from engine.joining import Session
from engine.sessions import Sessions
from engine.snapshot import Phase
from engine.types import Finished, Work
from tests.unit.engine.generating import Steps, generator, settled, state, texts
from tests.unit.engine.recorder import PATIENCE_S, Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]

AT_ONCE = EvictionPolicy(min_stay_s=0.0, longest_hold_s=0.0)
CACHE = {"new_tokens": 9, "bytes": 300, "cache_bytes": 40}
"""Of a thousand bytes one sequence of a word takes 400, beside the model's 300: a second one has no room."""


def until(engine: Engine, happened: Callable[[], bool]) -> None:
    """Wait for what the engine tells of itself, while works are in hand."""
    while not happened():
        assert not engine.drain(0.002)


@pytest.mark.parametrize("size", [600, 800], ids=["beside", "instead"])
def test_a_sequence_that_waits_for_its_cache_outlives_a_load(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork, steps: Steps, size: int
) -> None:
    models = {"g": generator(**CACHE), "e": {"bytes": size, "load_seconds": 0.3}}
    engine = make_engine(models, eviction=AT_ONCE)
    one, two = prompt("one"), prompt("two", caller="other")
    steps.hold()
    engine.submit([one])
    steps.until(1)
    engine.submit([two])
    steps.go(2)
    steps.until(3)
    embedding = now_work("x", model="e")
    engine.submit([embedding])
    until(engine, lambda: state(engine, "e").phase is Phase.LOADING)
    steps.go(None)
    assert len(texts(recorder, two)[0].split()) == 9
    recorder.results(one, embedding)
    assert settled(engine)
    assert steps.caches == 0


def test_one_that_waits_for_its_cache_goes_back_to_the_queue_when_its_model_is_to_leave(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(**CACHE), "e": {"bytes": 800}})
    one, two = prompt("one"), prompt("two", caller="other")
    steps.hold()
    engine.submit([one])
    steps.until(1)
    engine.submit([two])
    steps.go(2)
    steps.until(3)
    assert engine.snapshot().waiting_items == 0
    engine.submit([now_work("x", model="e")])
    until(engine, lambda: state(engine).phase is Phase.LEAVING)
    steps.go(2)
    steps.until(5)
    assert state(engine).waiting == 1
    steps.go(None)
    assert len(texts(recorder, two)[0].split()) == 9
    assert state(engine).loads == 2


def test_one_that_went_back_to_the_queue_can_be_cancelled(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(**CACHE), "e": {"bytes": 800}})
    one, two, embedding = prompt("one"), prompt("two", caller="other"), now_work("x", model="e")
    steps.hold()
    engine.submit([one])
    steps.until(1)
    engine.submit([two])
    steps.go(2)
    steps.until(3)
    engine.submit([embedding])
    until(engine, lambda: state(engine).phase is Phase.LEAVING)
    steps.go(2)
    steps.until(5)
    assert engine.cancel([two.id]) == [two.id]
    steps.go(None)
    recorder.results(one, embedding)
    assert engine.drain(PATIENCE_S)
    assert state(engine).loads == 1


def test_an_endless_stream_of_generations_keeps_no_other_model_out(
    make_engine: MakeEngine,
    recorder: Recorder,
    prompt: MakeWork,
    now_work: MakeWork,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = EvictionPolicy(min_stay_s=0.0, longest_hold_s=0.3)
    models = {"g": generator(new_tokens=20, step_seconds=0.001, bytes=600), "e": {"bytes": 600}}
    engine = make_engine(models, eviction=policy)
    tell = recorder.finished

    def again(done: Sequence[Finished]) -> None:
        tell(done)
        if embedding.id not in recorder.done:
            engine.submit([prompt("again") for one in done if one.work.model == "g"])

    monkeypatch.setattr(recorder, "finished", again)
    embedding = now_work("x", model="e")
    engine.submit([prompt(f"p{n}") for n in range(20)])
    recorder.until(lambda: bool(recorder.done))
    engine.submit([embedding])
    recorder.results(embedding)
    assert state(engine).evictions == 1


@pytest.mark.parametrize("place", list(Place))
def test_an_endless_stream_of_generations_leaves_a_larger_generator_the_room_that_it_kept_for_its_steps(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    monkeypatch.setattr(FakeGeneratorAdapter, "place", place)
    policy = EvictionPolicy(min_stay_s=0.0, longest_hold_s=0.3, pace_s=0.3)
    greedy = generator(new_tokens=20, step_seconds=0.001, bytes=400, activation_bytes=50)
    engine = make_engine({"g": greedy, "big": generator(bytes=750)}, eviction=policy, batch_tokens=8, host_bytes=1000)
    tell, big = recorder.finished, prompt("x", model="big")

    def again(done: Sequence[Finished]) -> None:
        tell(done)
        if big.id not in recorder.done:
            engine.submit([prompt("again") for one in done if one.work.model == "g"])

    monkeypatch.setattr(recorder, "finished", again)
    engine.submit([prompt(f"p{n}") for n in range(8)])
    recorder.until(lambda: bool(recorder.done))
    engine.submit([big])
    recorder.results(big)
    assert state(engine).evictions == 1


def test_every_sequence_counts_for_the_worth_of_its_model(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork, steps: Steps
) -> None:
    load = {"bytes": 450, "load_seconds": 0.02}
    engine = make_engine({"g": generator(new_tokens=2, **load), "m": load, "e": load}, eviction=AT_ONCE)
    few = [now_work("x", model="m") for _ in range(3)]
    engine.submit(few)
    recorder.results(*few)
    steps.hold()
    engine.submit([prompt("first")])
    steps.until(1)
    many = [prompt(f"p{n}") for n in range(7)]
    engine.submit(many)
    steps.go(None)
    recorder.results(*many)
    assert settled(engine)
    embedding = now_work("x", model="e")
    engine.submit([embedding])
    recorder.results(embedding)
    assert (state(engine).evictions, state(engine, "m").evictions) == (0, 1)


def test_a_sequence_that_waits_for_a_load_leaves_its_lane_asleep(
    make_engine: MakeEngine,
    recorder: Recorder,
    prompt: MakeWork,
    now_work: MakeWork,
    steps: Steps,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn, turns = Sessions.turn, list[bool]()

    def noted(self: Sessions, session: Session, *, step: bool) -> bool:
        turns.append(step)
        return turn(self, session, step=step)

    monkeypatch.setattr(Sessions, "turn", noted)
    models = {"g": generator(**CACHE), "e": {"bytes": 600, "load_seconds": 0.3}}
    engine = make_engine(models, eviction=AT_ONCE)
    one, two = prompt("one"), prompt("two", caller="other")
    steps.hold()
    engine.submit([one])
    steps.until(1)
    engine.submit([two])
    steps.go(2)
    steps.until(3)
    engine.submit([now_work("x", model="e")])
    until(engine, lambda: state(engine, "e").phase is Phase.LOADING)
    steps.go(None)
    recorder.results(one, two)
    assert settled(engine)
    assert len(turns) < len(steps.log) + 20
