from __future__ import annotations

import threading
from typing import Any

import pytest

from engine.adapters.fake import FakeAdapter
from engine.device import CpuDevice
from engine.eviction import EvictionPolicy
from engine.snapshot import Phase, Reason
from tests.unit.engine.recorder import PATIENCE_S
from tests.unit.engine.watching import MakeResidency, Pool, Watching, held, state

PARKS: dict[str, Any] = {"bytes": 600, "parks": True}


def test_an_evicted_model_waits_in_host_memory(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": PARKS, "b": PARKS}, host_bytes=1000)
    held(residency, "a", "b")
    found = state(residency, "a")
    assert (found.phase, found.bytes, found.host_bytes) == (Phase.PARKED, 0, 600)
    assert residency.snapshot()[1].host == 600


def test_coming_back_from_host_memory_is_no_load(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": PARKS | {"restore_seconds": 0.02}, "b": PARKS}, host_bytes=1200)
    held(residency, "a", "b", "a")
    found = state(residency, "a")
    assert (found.phase, found.loads, found.restores, found.bytes, found.host_bytes) == (Phase.RESIDENT, 1, 1, 600, 0)
    assert found.restore_s >= 0.02
    assert found.load_s < found.restore_s


def test_without_room_in_host_memory_the_least_valuable_is_dropped(
    make_residency: MakeResidency, watching: Watching
) -> None:
    residency = make_residency({"rare": PARKS, "busy": PARKS, "c": {"bytes": 600}}, host_bytes=1000)
    held(residency, "rare", *["busy"] * 20, "c")
    watching.until("left", "busy")
    assert state(residency, "rare").phase is Phase.ABSENT
    assert state(residency, "busy").phase is Phase.PARKED
    assert residency.snapshot()[1].host == 600


def test_a_model_too_large_for_host_memory_is_unloaded(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": PARKS, "b": PARKS}, host_bytes=599)
    held(residency, "a", "b")
    assert (state(residency, "a").phase, residency.snapshot()[1].host) == (Phase.ABSENT, 0)


def test_a_model_that_cannot_park_sends_nobody_out_of_host_memory(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": PARKS, "b": {"bytes": 700}, "c": PARKS}, host_bytes=1000)
    held(residency, "a", *["b"] * 20, "c")
    assert [state(residency, name).phase for name in "ab"] == [Phase.PARKED, Phase.ABSENT]


def test_what_is_dropped_from_host_memory_is_counted(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"a": PARKS, "b": PARKS, "c": {"bytes": 600}}, host_bytes=600)
    held(residency, "a", *["b"] * 20, "c")
    watching.until("left", "b")
    assert (state(residency, "a").dropped, state(residency, "b").dropped) == ({Reason.ROOM: 1}, {})


def test_a_family_that_cannot_park_is_unloaded(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"bytes": 600}, "b": PARKS}, host_bytes=1000)
    held(residency, "a", "b")
    assert (state(residency, "a").phase, residency.snapshot()[1].host) == (Phase.ABSENT, 0)


def test_a_park_that_fails_is_an_unload(make_residency: MakeResidency, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(self: FakeAdapter) -> int | None:
        raise MemoryError

    monkeypatch.setattr(FakeAdapter, "park", breaks)
    residency = make_residency({"a": PARKS, "b": PARKS}, host_bytes=1000)
    held(residency, "a", "b")
    assert (state(residency, "a").phase, residency.snapshot()[1].host) == (Phase.ABSENT, 0)
    held(residency, "a")


def test_a_failed_return_falls_back_to_the_files(make_residency: MakeResidency) -> None:
    faults = [{"kind": "fail_restore", "reason": "out_of_memory"}]
    residency = make_residency({"a": PARKS | {"faults": faults}, "b": PARKS}, host_bytes=1200)
    held(residency, "a", "b", "a")
    found = state(residency, "a")
    assert (found.phase, found.loads, found.restores, found.host_bytes) == (Phase.RESIDENT, 2, 0, 0)
    assert found.last_error is None


def test_a_model_on_its_way_to_host_memory_holds_up_nobody(make_residency: MakeResidency, watching: Watching) -> None:
    slow = {"bytes": 600, "parks": True, "park_seconds": 600.0}
    residency = make_residency({"slow": slow, "other": {"bytes": 300}, "b": {"bytes": 600}}, host_bytes=1000)
    held(residency, "other", "slow")
    for _ in range(50):
        held(residency, "other")
    residency.want("b")
    watching.until("started", "b")
    held(residency, "other")
    watching.never("ready", "b")


def test_bringing_back_costs_what_the_copy_takes(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": PARKS | {"load_seconds": 0.2}, "b": PARKS}, host_bytes=1200)
    held(residency, "a")
    assert residency.load_seconds()["a"] >= 0.2
    held(residency, "b", "a")
    assert residency.load_seconds()["a"] < 0.1


def test_on_a_cpu_parked_weights_count_for_the_host_alone(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": PARKS, "b": PARKS}, host_bytes=1000, device=CpuDevice())
    held(residency, "a", "b")
    ledger = residency.snapshot()[1]
    assert (ledger.weights, ledger.host) == (600, 600)


def test_a_batch_without_memory_on_a_cpu_gets_that_of_parked_models(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": PARKS, "b": PARKS}, host_bytes=1000, device=CpuDevice())
    held(residency, "a", "b")
    assert residency.relieve()
    assert (state(residency, "a").phase, state(residency, "b").phase) == (Phase.ABSENT, Phase.RESIDENT)
    assert state(residency, "a").dropped == {Reason.MEMORY: 1}
    assert residency.relieve()
    assert (state(residency, "b").phase, residency.snapshot()[1].host) == (Phase.ABSENT, 0)
    assert state(residency, "b").evicted == {Reason.MEMORY: 1}


def test_stopping_gives_back_what_is_parked(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": PARKS, "b": PARKS}, host_bytes=1000)
    held(residency, "a", "b")
    residency.stop()
    ledger = residency.snapshot()[1]
    assert (ledger.weights, ledger.host) == (0, 0)


def test_many_cycles_through_host_memory_stay_within_both_budgets(make_residency: MakeResidency) -> None:
    sizes = {"a": 300, "b": 400, "c": 500, "d": 600, "e": 700}
    models = {name: {"bytes": size, "parks": True} for name, size in sizes.items()}
    pool = Pool(2**40)
    residency = make_residency(models, host_bytes=1100, loaders=2, account=pool)
    over: list[tuple[int, int]] = []

    def use(names: str) -> None:
        for name in names:
            residency.acquire(name, PATIENCE_S)
            ledger = residency.snapshot()[1]
            if ledger.host > 1100:
                over.append((ledger.weights, ledger.host))
            residency.release(name)

    threads = [threading.Thread(target=use, args=(names * 10,)) for names in ("abcde", "edcba", "caebd")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not over
    # What was taken, for room is promised before it is free.
    assert pool.most <= 1000
    assert sum(m.restores for m in residency.snapshot()[0]) > 0


def test_a_return_that_must_wait_is_told_once_when_it_begins(make_residency: MakeResidency, watching: Watching) -> None:
    slow = PARKS | {"load_seconds": 0.3}
    policy = EvictionPolicy(pace_s=0.0, min_stay_s=0.0)
    residency = make_residency({"a": slow, "b": slow}, host_bytes=1200, policy=policy)
    held(residency, "a", "b", *["a"] * 50)
    before = watching.events.count(("started", "b"))
    held(residency, "b", "a", "b")
    assert watching.events.count(("started", "b")) - before == 2
    assert state(residency, "b").restores == 2
