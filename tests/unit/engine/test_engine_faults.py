"""What goes wrong hits the item that caused it, and no other."""

from __future__ import annotations

from collections.abc import Callable

from engine.engine import Engine
from engine.errors import EngineError, LoadFailed, LoadReason
from engine.snapshot import ModelState
from engine.types import Work
from tests.unit.engine.recorder import Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]


def model(engine: Engine, name: str = "m") -> ModelState:
    return next(state for state in engine.snapshot().models if state.model == name)


def codes(recorder: Recorder, work: Work) -> list[str]:
    outcomes = recorder.results(work)[0].outcomes
    return [outcome.code if isinstance(outcome, EngineError) else "" for outcome in outcomes]


def test_one_poison_item_among_eight_jobs_fails_alone(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"faults": [{"kind": "error", "when_text": "poison"}]}}, started=False)
    works = [now_work("poison" if n == 2 else f"text {n}", caller=str(n)) for n in range(8)]
    engine.submit(works)
    engine.start()
    assert [codes(recorder, work)[0] for work in works] == ["", "", "model_failed", "", "", "", "", ""]
    assert len(recorder.started) == 1


def test_nan_fails_one_item_and_the_work_is_finished(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"faults": [{"kind": "nan", "when_text": "two"}]}})
    work = now_work("one", "two", "three")
    engine.submit([work])
    assert codes(recorder, work) == ["", "not_finite", ""]


def test_when_memory_runs_out_an_idle_model_makes_room(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    faults = [{"kind": "oom", "at_call": 1, "times": 2}]
    engine = make_engine({"idle": {"bytes": 100}, "m": {"bytes": 100, "faults": faults}})
    first = now_work(model="idle")
    engine.submit([first])
    recorder.results(first)
    work = now_work()
    engine.submit([work])
    assert codes(recorder, work) == [""]
    assert model(engine, "idle").evictions == 1


def test_a_memory_error_leaves_the_process_and_the_next_works_alive(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"faults": [{"kind": "memory_error", "when_text": "huge"}]}})
    huge = now_work("huge")
    good = [now_work(str(n)) for n in range(20)]
    engine.submit([huge, *good])
    assert codes(recorder, huge) == ["out_of_memory"]
    assert all(codes(recorder, work) == [""] for work in good)


def test_a_lost_device_is_told_once_and_takes_no_more(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    options = {"seconds_per_cost": 0.005, "faults": [{"kind": "device_lost", "when_text": "bad"}]}
    engine = make_engine({"m": options}, lanes=2, batch_items=1)
    bad = [now_work("bad", caller=str(n)) for n in range(2)]
    engine.submit(bad)
    recorder.until(lambda: len(recorder.started) == 2)
    recorder.until(lambda: bool(recorder.lost))
    late = [now_work(str(n)) for n in range(5)]
    assert engine.submit(late) == [work.id for work in late]
    assert engine.snapshot().lost
    engine.stop(timeout_s=0.2)
    assert [error.retryable for error in recorder.lost] == [True]
    assert recorder.done == {}


def test_nothing_starts_on_a_device_that_is_being_given_up(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"faults": [{"kind": "device_lost", "when_text": "bad"}]}}, lanes=2, started=False)
    bad = now_work("bad")
    engine.submit([bad, *(now_work(str(n), alone=True) for n in range(5))])
    engine.start()
    recorder.until(lambda: bool(recorder.lost))
    engine.stop(timeout_s=0.5)
    assert [entry.work.id for batch in recorder.started for entry in batch.entries] == [bad.id]
    assert recorder.ended == []


def test_a_model_refused_from_outside_fails_its_works_with_that_reason(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {}, "other": {}})
    engine.refuse("m", LoadFailed("m was not loaded in time", LoadReason.TIMEOUT))
    refused, served = now_work("text"), now_work("text", model="other")
    engine.submit([refused, served])
    assert codes(recorder, refused) == ["model_load_failed"]
    assert codes(recorder, served) == [""]
    assert recorder.loading == ["other"]


def test_a_lost_device_leaves_what_has_not_started_to_be_handed_back(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"faults": [{"kind": "device_lost", "when_text": "bad"}]}}, batch_items=1)
    bad, waiting = now_work("bad"), now_work("good")
    engine.submit([bad, waiting])
    recorder.until(lambda: bool(recorder.lost))
    assert engine.hand_back() == [waiting.id]
