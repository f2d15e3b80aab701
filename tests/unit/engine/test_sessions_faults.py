"""A sequence fails alone, and a device once."""

from __future__ import annotations

from collections.abc import Callable

from engine.engine import Engine
from engine.types import Work
from tests.unit.engine.generating import Steps, generator, settled, texts
from tests.unit.engine.recorder import Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]


def test_a_poisoned_sequence_fails_alone(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    faults = [{"kind": "error", "when_text": "poison"}]
    engine = make_engine({"g": generator(new_tokens=4, faults=faults)}, started=False)
    bad, good = prompt("poison"), [prompt(f"good {n}") for n in range(5)]
    engine.submit([*good[:2], bad, *good[2:]])
    engine.start()
    assert texts(recorder, bad) == ["model_failed"]
    assert all(len(texts(recorder, work)[0].split()) == 4 for work in good)
    assert settled(engine)
    assert steps.caches == 0


def test_when_memory_runs_out_fewer_go_at_once_from_then_on(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    faults = [{"kind": "oom", "over_items": 2}]
    engine = make_engine({"g": generator(new_tokens=6, faults=faults)}, started=False)
    works = [prompt(f"p{n}") for n in range(4)]
    engine.submit(works)
    engine.start()
    assert all(len(texts(recorder, work)[0].split()) == 6 for work in works)
    assert [len(step) for step in steps.log[:4]] == [4, 4, 2, 2]
    assert all(len(step) <= 2 for step in steps.log[4:])
    assert settled(engine)


def test_an_item_that_is_no_prompt_fails_without_a_step(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=2)})
    work = prompt("", "good")
    engine.submit([work])
    first, second = texts(recorder, work)
    assert (first, len(second.split())) == ("invalid_item", 2)
    assert len(steps.log) == 2
    assert settled(engine)


def test_a_lost_device_is_told_once(make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork) -> None:
    engine = make_engine({"g": generator(faults=[{"kind": "device_lost", "at_call": 3}])})
    engine.submit([prompt("one"), prompt("two")])
    recorder.until(lambda: bool(recorder.lost))
    engine.stop(timeout_s=0.5)
    assert len(recorder.lost) == 1
    assert recorder.done == {}
