"""What comes between a load and its end: others' wake-ups, errors that are kept, waits that have ended."""

from __future__ import annotations

import threading

import pytest

from engine import loading
from engine.adapters.fake import FakeAdapter
from engine.device import FakeDevice
from engine.residency import Residency
from engine.snapshot import Phase
from tests.unit.engine.recorder import PATIENCE_S
from tests.unit.engine.watching import MakeResidency, Pool, Watching, held, state


def test_a_loader_survives_what_is_no_exception(
    make_residency: MakeResidency, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = FakeAdapter.load

    def exits(adapter: FakeAdapter) -> None:
        if adapter.spec.id == "a":
            raise SystemExit(1)
        load(adapter)

    monkeypatch.setattr(FakeAdapter, "load", exits)
    residency = make_residency({"a": {}, "b": {}})
    residency.want("a")
    watching.until("refused", "a")
    held(residency, "b")


def test_an_error_that_is_kept_keeps_no_frames(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"a": {"faults": [{"kind": "fail_load", "reason": "gated"}]}})
    residency.want("a")
    watching.until("refused", "a")
    error = residency.refusal("a")
    assert error is not None
    assert (error.__traceback__, error.__cause__, error.__context__) == (None, None, None)


def test_memory_that_comes_back_without_a_word_ends_a_loads_wait(
    make_residency: MakeResidency, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "POLL_S", 0.01)
    residency = make_residency({"a": {"bytes": 600}})
    residency.ledger.lend(900)
    residency.want("a")
    watching.until("started", "a")
    watching.never("ready", "a")
    residency.ledger.lend(-900)
    watching.until("ready", "a")


def test_a_busy_worker_gives_back_what_its_batches_need_no_more(
    make_residency: MakeResidency, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "POLL_S", 0.05)
    pool = Pool(1000)
    residency = make_residency({"a": {"bytes": 100}}, account=pool)
    residency.acquire("a", PATIENCE_S)
    residency.ledger.lend(500)
    residency.ledger.lend(-500)
    given_back = threading.Event()
    for _ in range(1000):
        residency.acquire("a")
        residency.release("a")
        if pool.share.held == 100 or given_back.wait(0.005):
            return
    pytest.fail(f"{pool.share.held} bytes are held")


def test_a_load_that_can_begin_only_later_is_told_as_ended_before_it_can_begin_again(
    make_residency: MakeResidency, watching: Watching
) -> None:
    residency: Residency = make_residency({"a": {"bytes": 600}, "b": {"bytes": 600}}, loaders=2)
    phases: list[Phase] = []
    ended = watching.load_ended

    def note(model: str) -> None:
        if model == "b":
            phases.append(state(residency, "b").phase)
        ended(model)

    watching.load_ended = note  # type: ignore[method-assign]
    residency.want("a")
    watching.until("ready", "a")
    # It has work that it has not done yet, so it stays for a while.
    residency.want("b")
    watching.until("ended", "b")
    assert phases == [Phase.LOADING]


def test_who_waits_anew_for_memory_that_is_nobodys_of_ours_waits_as_long_as_the_first(
    make_residency: MakeResidency, watching: Watching
) -> None:
    now = [0.0]
    device = FakeDevice(1000)
    device.foreign = 1000
    residency = make_residency({"a": {"bytes": 600}}, device=device, clock=lambda: now[0], foreign_wait_s=10.0)
    residency.want("a")
    watching.until("ended", "a")
    residency.unwant("a")
    now[0] = 100.0
    residency.want("a")
    watching.never("refused", "a", within_s=0.2)
    now[0] = 111.0
    residency.want("a")
    watching.until("refused", "a")


def test_a_stop_drops_the_host_copy_of_a_model_that_was_about_to_come_back(
    make_residency: MakeResidency, watching: Watching
) -> None:
    models = {"a": {"bytes": 600, "parks": True}, "b": {"bytes": 600}}
    residency = make_residency(models, host_bytes=1000)
    held(residency, "a")
    residency.acquire("b", PATIENCE_S)
    assert state(residency, "a").phase is Phase.PARKED
    residency.want("a")
    watching.until("started", "a", times=2)
    # Its load waits for the lease on b.
    residency.stop(1.0)
    assert (state(residency, "a").phase, state(residency, "a").host_bytes) == (Phase.ABSENT, 0)
    assert residency.snapshot()[1].host == 0
    residency.release("b")
