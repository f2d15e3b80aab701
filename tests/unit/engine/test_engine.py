from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.errors import UnknownModel
from catalog.schema import CostCoefficients
from catalog.terms import Lane
from engine.adapters.fake import FakeAdapter
from engine.device import CpuDevice
from engine.engine import Engine
from engine.errors import EngineError, LoadFailed, LoadReason, ModelTooLarge
from engine.snapshot import ModelState, Phase
from engine.types import Batch, Outcome, Output, Work
from tests.unit.engine.recorder import PATIENCE_S, Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]

HANG: dict[str, Any] = {"faults": [{"kind": "hang", "when_text": "hang"}]}
SLOW = CostCoefficients(base=1000.0, per_token=0.0)


def model(engine: Engine, name: str = "m") -> ModelState:
    return next(state for state in engine.snapshot().models if state.model == name)


def codes(recorder: Recorder, work: Work) -> list[str]:
    outcomes = recorder.results(work)[0].outcomes
    return [outcome.code if isinstance(outcome, EngineError) else "" for outcome in outcomes]


@pytest.fixture
def now_work(make_work: MakeWork) -> MakeWork:
    """As `make_work`, arrived now on the engine's clock."""
    return lambda *texts, **fields: make_work(*texts, **({"arrived": time.monotonic()} | fields))


def test_a_work_is_finished_with_an_output_for_each_item(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine()
    work = now_work("a", "b", "c")
    assert engine.submit([work]) == []
    done = recorder.results(work)[0]
    assert done.work is work
    assert len(done.outcomes) == 3
    assert all(isinstance(outcome, Output) for outcome in done.outcomes)
    assert len({outcome.fields["dense"]["values"] for outcome in done.outcomes if isinstance(outcome, Output)}) == 3


def test_what_waits_runs_together_and_commits_together(
    make_engine: MakeEngine, recorder: Recorder, make_work: MakeWork
) -> None:
    engine = make_engine(started=False)
    works = [make_work() for _ in range(300)]
    engine.submit(works)
    engine.start()
    recorder.results(*works)
    assert [len(call) for call in recorder.calls] == [256, 44]
    assert [len(batch.entries) for batch in recorder.started] == [256, 44]
    assert recorder.ended == recorder.started


def test_nothing_waits_for_a_batch_to_grow(make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork) -> None:
    engine = make_engine()
    for _ in range(3):
        work = now_work()
        engine.submit([work])
        recorder.results(work)
    assert [len(batch.entries) for batch in recorder.started] == [1, 1, 1]


def test_a_large_work_is_reported_once_when_its_last_batch_has_ended(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine(batch_items=4)
    work = now_work(*"abcdefghij")
    engine.submit([work])
    assert len(recorder.results(work)[0].outcomes) == 10
    assert len(recorder.started) == 3
    assert len(recorder.calls) == 1


def test_the_listener_learns_the_limits_of_batches_and_loads(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine(batch_limit_s=7.0, load_limit_s=9.0)
    work = now_work()
    engine.submit([work])
    recorder.results(work)
    assert recorder.limits == [9.0, 7.0]
    assert (recorder.loading, recorder.loaded) == (["m"], ["m"])


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
    recorder.until(lambda: len(recorder.ended) == 2)
    recorder.until(lambda: bool(recorder.lost))
    late = [now_work(str(n)) for n in range(5)]
    assert engine.submit(late) == [work.id for work in late]
    assert engine.snapshot().lost
    engine.stop(timeout_s=0.2)
    assert [error.retryable for error in recorder.lost] == [True]
    assert recorder.done == {}


def test_a_lost_device_leaves_what_has_not_started_to_be_handed_back(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"faults": [{"kind": "device_lost", "when_text": "bad"}]}}, batch_items=1)
    bad, waiting = now_work("bad"), now_work("good")
    engine.submit([bad, waiting])
    recorder.until(lambda: bool(recorder.lost))
    assert engine.hand_back() == [waiting.id]


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


def test_a_deadline_ends_the_wait_for_a_load_in_time(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"load_seconds": 60.0}})
    work = now_work(deadline=time.monotonic() + 0.1)
    engine.submit([work])
    assert codes(recorder, work) == ["deadline_passed"]
    assert recorder.done[work.id].finished - work.arrived < 1.0


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


def test_a_work_alone_has_nothing_beside_it(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: dict[int, bool] = {}
    beside: list[list[bool]] = []
    real = FakeAdapter.run

    def watched(self: FakeAdapter, batch: Batch) -> Sequence[Outcome]:
        running[batch.id] = batch.alone
        beside.append(list(running.values()))
        try:
            return real(self, batch)
        finally:
            del running[batch.id]

    monkeypatch.setattr(FakeAdapter, "run", watched)
    engine = make_engine({"m": {"seconds_per_cost": 0.0005}}, lanes=4, batch_items=2)
    works = [now_work("a", "b", caller=str(n), alone=n % 5 == 0) for n in range(40)]
    engine.submit(works)
    recorder.results(*works)
    assert [together for together in beside if any(together) and len(together) > 1] == []
    assert sum(together == [True] for together in beside) == 16
    assert max(len(together) for together in beside) > 1


def test_a_model_that_is_not_reentrant_runs_one_batch_at_a_time(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeAdapter, "reentrant", False)
    engine = make_engine({"m": {"seconds_per_cost": 0.0005}, "n": {"seconds_per_cost": 0.0005}}, lanes=4, batch_items=1)
    works = [now_work(model=name, caller=str(n)) for n in range(10) for name in ("m", "n")]
    engine.submit(works)
    leases = []
    while not engine.drain(0.001):
        leases.append(max(state.leases for state in engine.snapshot().models))
    assert max(leases) == 1


def test_activations_lent_never_pass_what_the_weights_leave(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    options = {"bytes": 400, "activation_bytes": 5, "seconds_per_cost": 0.0001, "max_length": 50}
    engine = make_engine({"m": options}, lanes=4)
    works = [now_work(lengths=[1 + n % 50]) for n in range(300)]
    engine.submit(works)
    lent = []
    while not engine.drain(0.001):
        lent.append(engine.snapshot().ledger.lent)
    recorder.results(*works)
    assert 0 < max(lent) <= 600
    assert engine.snapshot().ledger.lent == 0


def test_one_batch_takes_all_cores_and_batches_side_by_side_share_them(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=threads.append))
    device = CpuDevice()
    device.cores = 4
    engine = make_engine(device=device, lanes=2, batch_items=1, budget_bytes=2**20)
    one = now_work()
    engine.submit([one])
    recorder.results(one)
    assert threads == [4]
    many = [now_work() for _ in range(5)]
    engine.submit(many)
    recorder.results(*many)
    assert threads[1:5] == [2, 2, 2, 2]


def test_seconds_spent_add_up_to_the_stay(make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork) -> None:
    engine = make_engine(
        {"m": {"cost": SLOW, "load_seconds": 0.05, "seconds_per_cost": 0.00003}}, lanes=2, batch_items=2
    )
    works = [now_work("a", "b", "c") for _ in range(4)]
    engine.submit(works)
    for done in recorder.results(*works):
        spent = done.spent
        assert spent.load + spent.wait + spent.device == pytest.approx(done.finished - done.work.arrived, rel=0.02)
        assert spent.load >= 0.05
        assert spent.device >= 0.03
        assert done.device_ms > 0.0


def test_the_snapshot_tells_batches_models_and_the_account(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"bytes": 300, "cost": CostCoefficients(base=1.0, per_token=0.0)}})
    work = now_work(lengths=[10, 6])
    engine.submit([work])
    recorder.results(work)
    assert engine.drain(PATIENCE_S)
    shot = engine.snapshot()
    assert (shot.batches.batches, shot.batches.items) == (1, 2)
    assert (shot.batches.real_tokens, shot.batches.padded_tokens) == (16, 20)
    assert (shot.ledger.weights, shot.ledger.budget) == (300, 1000)
    assert (shot.waiting_works, shot.running, shot.lost) == (0, 0, False)
    found = model(engine)
    assert (found.loads, found.bytes, found.leases, found.waiting) == (1, 300, 0, 0)
    assert found.last_used is not None


def test_bulk_waits_while_interactive_work_is_there(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine(started=False, batch_items=1)
    bulk = [now_work(lane=Lane.BULK) for _ in range(10)]
    interactive = [now_work() for _ in range(10)]
    engine.submit([*bulk, *interactive])
    engine.start()
    recorder.results(*bulk, *interactive)
    first = [batch.entries[0].work.lane for batch in recorder.started][:10]
    assert first.count(Lane.INTERACTIVE) >= 9


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
