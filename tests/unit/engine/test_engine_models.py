"""Models come when they are wanted, once, and leave for others; what cannot be had is told by name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from catalog.errors import UnknownModel
from engine.engine import Engine
from engine.errors import EngineError, LoadFailed, LoadReason, ModelTooLarge
from engine.snapshot import ModelState, Phase
from engine.types import Work
from tests.unit.engine.recorder import PATIENCE_S, Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]


def model(engine: Engine, name: str = "m") -> ModelState:
    return next(state for state in engine.snapshot().models if state.model == name)


def codes(recorder: Recorder, work: Work) -> list[str]:
    outcomes = recorder.results(work)[0].outcomes
    return [outcome.code if isinstance(outcome, EngineError) else "" for outcome in outcomes]


def test_concurrent_cold_requests_load_a_model_once(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"load_seconds": 0.05}}, lanes=2, loaders=2)
    works = [now_work(str(n)) for n in range(64)]
    threads = [threading.Thread(target=engine.submit, args=([work],)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.results(*works)
    assert model(engine).loads == 1


def test_a_cold_model_answers_as_soon_as_it_is_loaded(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"load_seconds": 0.2}})
    work = now_work()
    engine.submit([work])
    done = recorder.results(work)[0]
    assert 0.2 <= done.finished - work.arrived < 1.0
    assert done.spent.load >= 0.2


def test_others_compute_while_a_model_loads(make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork) -> None:
    engine = make_engine({"slow": {"load_seconds": 60.0}, "m": {}})
    first = now_work()
    engine.submit([first])
    recorder.results(first)
    engine.submit([now_work(model="slow")])
    recorder.until(lambda: "slow" in recorder.loading)
    second = now_work()
    engine.submit([second])
    recorder.results(second)
    assert model(engine, "slow").phase is Phase.LOADING


def test_two_models_of_which_one_fits_both_serve(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"x": {"bytes": 600}, "y": {"bytes": 600}}, lanes=2)
    works = [now_work(model=name) for _ in range(20) for name in ("x", "y")]
    engine.submit(works)
    for work in works:
        assert codes(recorder, work) == [""]
    assert {model(engine, name).phase for name in "xy"} == {Phase.RESIDENT, Phase.ABSENT}
    assert engine.snapshot().ledger.weights <= 1000


def test_streams_for_two_models_that_do_not_fit_together_both_advance(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    models = {name: {"bytes": 600, "seconds_per_cost": 0.001} for name in ("x", "y")}
    engine = make_engine(models, lanes=2)
    works: list[Work] = []

    def stream(name: str) -> None:
        for _ in range(15):
            work = now_work(model=name)
            works.append(work)
            engine.submit([work])
            recorder.results(work)

    threads = [threading.Thread(target=stream, args=(name,)) for name in ("x", "y", "x", "y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [codes(recorder, work) for work in works] == [[""]] * 60


def test_a_model_too_large_for_the_budget_is_refused_by_name(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"huge": {"bytes": 2000}, "m": {}})
    first, second, other = now_work(model="huge"), now_work(model="huge"), now_work()
    engine.submit([first, other])
    assert codes(recorder, first) == ["model_too_large"]
    engine.submit([second])
    assert isinstance(recorder.results(second)[0].outcomes[0], ModelTooLarge)
    assert codes(recorder, other) == [""]


@pytest.mark.parametrize(("reason", "retryable"), [("network", True), ("gated", False), ("corrupt", False)])
def test_a_failed_load_fails_what_waits_for_it_with_its_reason(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, reason: str, retryable: bool
) -> None:
    faults = [{"kind": "fail_load", "reason": reason}]
    engine = make_engine({"bad": {"load_seconds": 0.02, "faults": faults}, "m": {}})
    works = [now_work(model="bad") for _ in range(5)]
    good = now_work()
    engine.submit([*works, good])
    for work in works:
        error = recorder.results(work)[0].outcomes[0]
        assert isinstance(error, LoadFailed)
        assert (error.reason, error.retryable) == (LoadReason(reason), retryable)
    assert codes(recorder, good) == [""]
    late = now_work(model="bad")
    engine.submit([late])
    assert codes(recorder, late) == ["model_load_failed"]
    assert recorder.loading.count("bad") == 1


def test_an_unknown_model_fails_its_work_only(make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork) -> None:
    engine = make_engine()
    unknown, known = now_work(model="nope"), now_work()
    engine.submit([unknown, known])
    assert codes(recorder, unknown) == ["model_load_failed"]
    assert codes(recorder, known) == [""]


def test_an_unknown_model_to_preload_is_a_fault_at_the_start(make_engine: MakeEngine) -> None:
    with pytest.raises(UnknownModel):
        make_engine(preload=("nope",))


def test_preloaded_models_are_there_before_the_first_work(make_engine: MakeEngine, recorder: Recorder) -> None:
    engine = make_engine({"x": {"bytes": 10}, "y": {"bytes": 10}}, preload=("x",), pinned=("y",))
    recorder.until(lambda: len(recorder.loaded) == 2)
    assert model(engine, "x").phase is Phase.RESIDENT
    assert model(engine, "y").pinned


def test_a_deadline_ends_the_wait_for_a_load_in_time(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"load_seconds": 60.0}})
    work = now_work(deadline=time.monotonic() + 0.1)
    engine.submit([work])
    assert codes(recorder, work) == ["deadline_passed"]
    assert recorder.done[work.id].finished - work.arrived < 1.0


def test_the_listener_learns_whenever_the_models_on_the_device_change(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"a": {"bytes": 600}, "b": {"bytes": 600}})
    for name in ("a", "b"):
        work = now_work(model=name)
        engine.submit([work])
        recorder.results(work)
    recorder.until(lambda: len(recorder.there) == 3)
    assert [set(models) for models in recorder.there] == [{"a"}, set(), {"b"}]
    assert all(seconds > 0 for models in recorder.there for seconds in models.values())
