from __future__ import annotations

import threading
import time

import pytest

from catalog.terms import Lane
from engine.device import FakeDevice
from engine.errors import LoadFailed, LoadReason, ModelTooLarge
from engine.eviction import EvictionPolicy
from engine.snapshot import Phase
from tests.unit.engine.recorder import PATIENCE_S
from tests.unit.engine.watching import MakeResidency, Watching, held, state


def test_a_wanted_model_is_loaded(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"a": {"bytes": 400}})
    assert residency.lease("a") is None
    residency.want("a")
    watching.until("ready", "a")
    assert residency.lease("a") is not None
    found = state(residency, "a")
    assert (found.phase, found.bytes, found.leases, found.loads) == (Phase.RESIDENT, 400, 1, 1)
    assert watching.events == [("started", "a"), ("ended", "a"), ("ready", "a")]


def test_concurrent_requests_load_a_model_once(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"load_seconds": 0.05}}, loaders=2)
    adapters: list[object] = []

    def ask() -> None:
        adapters.append(residency.acquire("a", PATIENCE_S))

    threads = [threading.Thread(target=ask) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(adapters) == 64
    assert len(set(map(id, adapters))) == 1
    assert (state(residency, "a").loads, state(residency, "a").leases) == (1, 64)


def test_the_least_valuable_is_evicted_to_make_room(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"bytes": 500}, "b": {"bytes": 400}, "c": {"bytes": 500}})
    held(residency, "a", "b")
    for _ in range(20):
        residency.acquire("b")
        residency.release("b")
    residency.acquire("c", PATIENCE_S)
    assert state(residency, "a").phase is Phase.ABSENT
    assert state(residency, "a").evictions == 1
    assert state(residency, "b").phase is Phase.RESIDENT


def test_a_leased_model_leaves_only_when_its_lease_has_ended(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"a": {"bytes": 600}, "b": {"bytes": 600}})
    residency.acquire("a", PATIENCE_S)
    residency.want("b")
    watching.until("started", "b")
    with watching.changed:
        assert not watching.changed.wait_for(lambda: ("ready", "b") in watching.events, 0.05)
    assert state(residency, "a").phase is Phase.LEAVING
    assert residency.lease("a") is None
    residency.release("a")
    watching.until("ready", "b")
    assert state(residency, "a").phase is Phase.ABSENT


def test_an_evicted_model_that_is_still_wanted_comes_back(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"a": {"bytes": 600}, "b": {"bytes": 600}})
    residency.want("a")
    held(residency, "a")
    residency.want("b")
    watching.until("ready", "b")
    residency.unwant("b")
    watching.until("ready", "a", times=2)
    assert state(residency, "a").loads == 2


def test_a_model_that_work_waits_for_is_not_evicted_before_it_has_served(
    make_residency: MakeResidency, watching: Watching
) -> None:
    residency = make_residency({"a": {"bytes": 600}, "b": {"bytes": 600}})
    residency.want("a")
    watching.until("ready", "a")
    residency.want("b")
    with watching.changed:
        assert not watching.changed.wait_for(lambda: ("ready", "b") in watching.events, 0.05)
    held(residency, "a")
    watching.until("ready", "b")


def test_the_ledger_never_passes_the_budget(make_residency: MakeResidency) -> None:
    residency = make_residency({name: {"bytes": 300} for name in "abcdefgh"})
    for name in "abcdefghhgfedcba":
        residency.acquire(name, PATIENCE_S)
        assert residency.snapshot()[1].weights <= 1000
        residency.release(name)


def test_a_model_that_can_never_fit_is_refused_with_what_to_do(make_residency: MakeResidency) -> None:
    residency = make_residency({"huge": {"bytes": 1001}, "a": {"bytes": 500}})
    held(residency, "a")
    with pytest.raises(ModelTooLarge, match="ROOST_BUDGET"):
        residency.acquire("huge", PATIENCE_S)
    assert isinstance(residency.refusal("huge"), ModelTooLarge)
    assert state(residency, "a").phase is Phase.RESIDENT


def test_the_activation_floor_counts_in_what_fits(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"bytes": 950, "activation_bytes": 6}})
    with pytest.raises(ModelTooLarge):
        residency.acquire("a", PATIENCE_S)


def test_a_pinned_model_is_never_evicted(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"bytes": 600}, "b": {"bytes": 600}}, pinned=("a",))
    held(residency, "a")
    with pytest.raises(ModelTooLarge, match="pinned models hold 600"):
        residency.acquire("b", PATIENCE_S)
    assert state(residency, "a").phase is Phase.RESIDENT


def test_a_failed_load_is_refused_until_it_has_cooled_down(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"faults": [{"kind": "fail_load", "reason": "gated"}]}})
    with pytest.raises(LoadFailed) as caught:
        residency.acquire("a", PATIENCE_S)
    assert caught.value.reason is LoadReason.GATED
    assert residency.refusal("a") is caught.value
    assert state(residency, "a").phase is Phase.FAILED
    with pytest.raises(LoadFailed):
        residency.acquire("a", PATIENCE_S)
    assert state(residency, "a").loads == 0


def test_while_it_cools_down_it_is_not_tried_even_if_wanted(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"a": {"faults": [{"kind": "fail_load", "reason": "gated"}]}, "b": {}})
    residency.want("a")
    watching.until("refused", "a")
    residency.want("a")
    residency.want("b")
    watching.until("ready", "b")
    assert watching.events.count(("started", "a")) == 1


def test_after_the_cool_down_it_is_tried_again(make_residency: MakeResidency) -> None:
    later = 0.0
    faults = [{"kind": "fail_load", "reason": "network", "times": 1}]
    residency = make_residency({"a": {"faults": faults}}, clock=lambda: time.monotonic() + later)
    with pytest.raises(LoadFailed):
        residency.acquire("a", PATIENCE_S)
    later = 60.0
    held(residency, "a")
    assert state(residency, "a").last_error is None


def test_one_models_failure_does_not_touch_the_others(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"bad": {"faults": [{"kind": "fail_load"}]}, "good": {}})
    residency.want("bad")
    residency.want("good")
    watching.until("ready", "good")
    watching.until("refused", "bad")


def test_a_load_that_runs_out_of_memory_evicts_and_tries_again(make_residency: MakeResidency) -> None:
    faults = [{"kind": "fail_load", "reason": "out_of_memory", "at_call": 1}]
    residency = make_residency({"idle": {"bytes": 100}, "a": {"bytes": 100, "faults": faults}})
    held(residency, "idle")
    residency.acquire("a", PATIENCE_S)
    assert state(residency, "idle").phase is Phase.ABSENT


def test_a_model_that_takes_more_than_its_estimate_makes_others_leave(
    make_residency: MakeResidency, watching: Watching
) -> None:
    residency = make_residency({"a": {"bytes": 400}, "b": {"bytes": 500, "actual_bytes": 800}})
    held(residency, "a", "b")
    residency.want("a")
    watching.until("ready", "a", times=2)
    assert residency.snapshot()[1].weights <= 1000


def test_a_model_that_turns_out_too_large_is_unloaded_and_refused(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"bytes": 100, "actual_bytes": 2000}})
    with pytest.raises(ModelTooLarge, match="2000 bytes"):
        residency.acquire("a", PATIENCE_S)
    assert residency.snapshot()[1].weights == 0


def test_foreign_memory_on_the_device_is_not_given_away(make_residency: MakeResidency) -> None:
    device = FakeDevice(1000)
    device.foreign = 700
    residency = make_residency({"a": {"bytes": 500}}, device=device)
    with pytest.raises(LoadFailed, match="300 free") as caught:
        residency.acquire("a", PATIENCE_S)
    assert caught.value.reason is LoadReason.OUT_OF_MEMORY


def test_interactive_work_gets_its_model_before_bulk(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"first": {"load_seconds": 0.05}, "bulk": {}, "quick": {}})
    residency.want("first")
    watching.until("started", "first")
    residency.want("bulk", Lane.BULK)
    residency.want("quick")
    watching.until("ready", "bulk")
    started = [model for event, model in watching.events if event == "started"]
    assert started == ["first", "quick", "bulk"]


def test_a_busy_model_keeps_its_place_for_its_minimum_stay(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"a": {"bytes": 600}, "b": {"bytes": 600}}, policy=EvictionPolicy(min_stay_s=0.1))
    residency.want("a")
    watching.until("ready", "a")
    loaded = time.monotonic()
    held(residency, "a")
    residency.want("b")
    watching.until("ready", "b")
    assert time.monotonic() - loaded >= 0.08


def test_relief_evicts_one_idle_model_and_says_when_there_is_none(make_residency: MakeResidency) -> None:
    residency = make_residency({"idle": {"bytes": 10}, "held": {"bytes": 10}})
    held(residency, "idle")
    residency.acquire("held", PATIENCE_S)
    assert residency.relieve()
    assert state(residency, "idle").phase is Phase.ABSENT
    assert not residency.relieve()


def test_loading_seconds_count_loads_only(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"load_seconds": 0.05}})
    assert residency.loading_seconds("a") == 0.0
    held(residency, "a")
    assert residency.loading_seconds("a") == residency.loading_seconds("a") >= 0.05


def test_waiting_for_a_model_ends_in_time(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"load_seconds": 60.0}})
    with pytest.raises(TimeoutError):
        residency.acquire("a", 0.01)


def test_stopping_ends_a_load_and_gives_everything_back(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"a": {"bytes": 100}, "slow": {"load_seconds": 600.0}})
    held(residency, "a")
    residency.want("slow")
    watching.until("started", "slow")
    began = time.monotonic()
    residency.stop(5.0)
    assert time.monotonic() - began < 5.0
    assert residency.snapshot()[1].weights == 0
    assert "slow" not in watching.errors
