"""Devices and models of replies, from heartbeats."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from api.model_schemas import WorkerObject
from api.presence import Worker
from api.residency import resident_object, summed, worker_object

MODEL: dict[str, Any] = {
    "key": "org/m:small",
    "state": "parked",
    "bytes": 0,
    "estimate": 90,
    "host_bytes": 100,
    "leases": 0,
    "pinned": False,
    "loads": 2,
    "load_s": 1.5,
    "restores": 3,
    "restore_s": 0.25,
    "evictions": 4,
    "evicted": {"room": 3, "idle": 1},
    "dropped": {"room": 1, "memory": 2},
    "departure": {"at": 1000.0, "reason": "room", "by": "org/other"},
    "retry_at": None,
    "last_error": {"code": "model_load_failed", "message": "gone", "retryable": False},
    "work": {"passes": 2, "items": 8, "real_tokens": 30, "padded_tokens": 32, "seconds": 0.5, "predicted_s": 0.4},
}


def test_a_bare_beat_is_told_whole() -> None:
    told = WorkerObject.model_validate(worker_object(Worker("w", 0.0, "cpu"), lambda _: True))
    assert (told.memory.budget, told.models, told.too_large, told.started_at) == (None, [], {}, None)


def test_a_bare_model_is_told_whole() -> None:
    worker = Worker("w", 0.0, "cpu", models=[{"key": "org/m", "state": "resident"}])
    [model] = WorkerObject.model_validate(worker_object(worker, lambda _: True)).models
    assert (model.state, model.bytes.weights, model.evictions.last, model.work) == ("resident", 0, None, None)


def test_a_model_tells_what_it_takes_and_why_it_left() -> None:
    worker = Worker("w", 0.0, "cpu", models=[MODEL])
    [model] = WorkerObject.model_validate(worker_object(worker, lambda _: True)).models
    assert (model.bytes.host, model.bytes.estimate, model.restores.count, model.loads.last_s) == (100, 90, 3, 1.5)
    assert model.evictions.by_reason == {"room": 3, "idle": 1}
    assert (model.drops.count, model.drops.by_reason) == (3, {"room": 1, "memory": 2})
    assert model.evictions.last is not None
    assert model.evictions.last.at == datetime.fromtimestamp(1000, UTC)
    assert (model.evictions.last.reason, model.evictions.last.for_model) == ("room", "org/other")
    assert model.work is not None
    assert (model.work.batches, model.work.predicted_seconds) == (2, 0.4)


def test_models_that_are_not_wanted_are_left_out() -> None:
    worker = Worker("w", 0.0, "cpu", models=[MODEL, {"key": "b"}], too_large={"c": "large", "b": "larger"})
    told = worker_object(worker, lambda key: key == "b")
    assert ([model["model"] for model in told["models"]], told["too_large"]) == (["b"], {"b": "larger"})


def test_of_several_workers_the_state_nearest_to_serving_counts_and_bytes_are_summed() -> None:
    found = summed([MODEL, {"state": "resident", "bytes": 7, "activations": 2, "waiting": 5}, {"state": "absent"}])
    assert found == {"state": "resident", "bytes": {"weights": 7, "activations": 2, "host": 100}, "waiting": 5}


def test_a_model_that_no_worker_knows_is_absent() -> None:
    assert summed([])["state"] == "absent"


def test_a_load_under_way_tells_how_long_it_has_run() -> None:
    assert resident_object({"key": "m", "state": "loading", "loading_s": 3.5})["loads"]["running_s"] == 3.5


def test_a_model_that_is_held_back_says_until_when() -> None:
    told = resident_object({"key": "m", "state": "absent", "comes_at": 1000.0})
    assert told["comes_at"] == datetime.fromtimestamp(1000, UTC)


def test_a_model_that_is_never_tried_again_has_no_time_for_it() -> None:
    assert resident_object({"key": "m", "state": "failed", "retry_at": float("inf")})["retry_at"] is None
