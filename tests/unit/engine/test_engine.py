"""What waits runs together, in good order and within bounds, and is told once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from catalog.schema import CostCoefficients
from catalog.terms import Lane
from engine.adapters.fake import FakeAdapter
from engine.device import CpuDevice
from engine.engine import Engine
from engine.snapshot import ModelState
from engine.types import Batch, Outcome, Output, Work
from tests.unit.engine.recorder import PATIENCE_S, Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]

SLOW = CostCoefficients(base=1000.0, per_token=0.0)


def model(engine: Engine, name: str = "m") -> ModelState:
    return next(state for state in engine.snapshot().models if state.model == name)


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
    monkeypatch.setattr("engine.lanes.SHORT_MS", 0.0)
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


def test_a_short_batch_leaves_the_other_cores_alone_though_nothing_else_runs(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=threads.append))
    device = CpuDevice()
    device.cores = 4
    models = {name: {"cost": CostCoefficients(base=base, per_token=0.1)} for name, base in (("s", 5.0), ("l", 500.0))}
    engine = make_engine(models, device=device, lanes=2, budget_bytes=2**20)
    for model in models:
        one = now_work(model=model)
        engine.submit([one])
        recorder.results(one)
    assert threads == [2, 4]


def test_a_bulk_batch_leaves_cores_to_interactive_work_that_may_come(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.lanes.SHORT_MS", 0.0)
    threads: list[int] = []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=threads.append))
    device = CpuDevice()
    device.cores = 4
    engine = make_engine(device=device, lanes=2, budget_bytes=2**20)
    for lane in (Lane.BULK, Lane.INTERACTIVE, Lane.BULK):
        one = now_work(lane=lane)
        engine.submit([one])
        recorder.results(one)
    assert threads == [4, 4, 2]


def test_the_device_time_of_a_batch_is_shared_by_what_its_items_cost(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    engine = make_engine({"m": {"cost": CostCoefficients(base=100.0, per_token=1.0)}}, started=False)
    short, long = now_work(lengths=[10]), now_work(lengths=[40])
    engine.submit([short, long])
    engine.start()
    one, other = recorder.results(short, long)
    assert len(recorder.started) == 1
    assert other.device_ms == pytest.approx(4 * one.device_ms)


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
