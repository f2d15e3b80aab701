"""What is cancelled, late, handed back or stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from catalog.schema import CostCoefficients
from engine.engine import Engine
from engine.errors import EngineError
from engine.types import Work
from tests.unit.engine.recorder import PATIENCE_S, Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]

HANG: dict[str, Any] = {"faults": [{"kind": "hang", "when_text": "hang"}]}
SLOW = CostCoefficients(base=1000.0, per_token=0.0)


def codes(recorder: Recorder, work: Work) -> list[str]:
    outcomes = recorder.results(work)[0].outcomes
    return [outcome.code if isinstance(outcome, EngineError) else "" for outcome in outcomes]


def test_a_cancelled_work_vanishes(make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork) -> None:
    engine = make_engine({"m": {"load_seconds": 0.1}})
    dropped, kept = now_work("a", "b"), now_work()
    engine.submit([dropped, kept])
    assert engine.cancel([dropped.id, "unknown"]) == [dropped.id]
    assert engine.cancel([dropped.id]) == []
    recorder.results(kept)
    assert engine.drain(PATIENCE_S)
    assert dropped.id not in recorder.done
    assert all(entry.work is kept for batch in recorder.started for entry in batch.entries)


def test_a_work_cancelled_while_it_runs_is_not_reported(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"cost": SLOW, "seconds_per_cost": 0.0002}})
    work = now_work()
    engine.submit([work])
    recorder.until(lambda: bool(recorder.started))
    assert engine.cancel([work.id]) == [work.id]
    recorder.until(lambda: bool(recorder.ended))
    assert engine.drain(PATIENCE_S)
    assert recorder.calls == []


def test_a_work_that_comes_again_under_its_id_does_not_get_the_old_ones_result(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"cost": SLOW, "seconds_per_cost": 0.0001}})
    old = now_work("old", id="same")
    engine.submit([old])
    recorder.until(lambda: bool(recorder.started))
    engine.cancel(["same"])
    new, alike = now_work("new", id="same"), now_work("new")
    engine.submit([new, alike])
    again, expected = recorder.results(new, alike)
    assert again.work is new
    assert again.outcomes == expected.outcomes


def test_a_work_in_hand_is_not_taken_twice(make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork) -> None:
    engine = make_engine(started=False)
    work = now_work()
    engine.submit([work])
    engine.submit([work])
    assert engine.snapshot().waiting_items == 1
    engine.start()
    recorder.results(work)
    assert engine.drain(PATIENCE_S)
    assert len(recorder.calls) == 1


def test_a_work_past_its_deadline_is_finished_with_that_error(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine()
    late = now_work("a", "b", deadline=time.monotonic() - 1.0)
    engine.submit([late])
    assert codes(recorder, late) == ["deadline_passed", "deadline_passed"]
    assert recorder.started == []


def test_hand_back_names_what_has_not_started_and_takes_no_more(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"cost": SLOW, "seconds_per_cost": 0.0001}}, batch_items=2)
    running = now_work("a", "b", "c")
    waiting = [now_work() for _ in range(3)]
    engine.submit([running])
    recorder.until(lambda: bool(recorder.started))
    engine.submit(waiting)
    assert set(engine.hand_back()) == {work.id for work in waiting}
    late = now_work()
    assert engine.submit([late]) == [late.id]
    assert codes(recorder, running) == ["", "", ""]
    assert engine.drain(PATIENCE_S)
    assert set(recorder.done) == {running.id}


def test_drain_says_when_it_takes_too_long(make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork) -> None:
    engine = make_engine({"m": HANG})
    engine.submit([now_work("hang")])
    recorder.until(lambda: bool(recorder.started))
    assert not engine.drain(0.01)


def test_stop_ends_while_a_load_and_a_batch_hang(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": HANG, "slow": {"load_seconds": 600.0}})
    engine.submit([now_work("hang"), now_work(model="slow")])
    recorder.until(lambda: bool(recorder.started) and "slow" in recorder.loading)
    began = time.monotonic()
    engine.stop(timeout_s=0.05)
    assert time.monotonic() - began < 5.0
    assert engine.snapshot().ledger.weights == 0


def test_a_wave_of_cancelled_works_leaves_nothing_behind(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"load_seconds": 0.05}})
    wave = [now_work(str(n)) for n in range(200)]
    engine.submit(wave)
    assert len(engine.cancel([work.id for work in wave])) == 200
    after = [now_work(str(n)) for n in range(200)]
    engine.submit(after)
    recorder.results(*after)
    assert engine.snapshot().batches.items == 200
    assert engine.snapshot().waiting_items == 0
