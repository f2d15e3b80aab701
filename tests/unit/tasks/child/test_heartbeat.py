"""What a beat says."""

from __future__ import annotations

from typing import Any

import msgpack

from engine.errors import LoadFailed, LoadReason
from engine.snapshot import EngineSnapshot, LedgerState, ModelState, Phase
from engine.types import BatchStats
from tasks.child.heartbeat import describe


def model(**changes: object) -> ModelState:
    values = {
        "model": "m",
        "phase": Phase.RESIDENT,
        "bytes": 9,
        "leases": 1,
        "pinned": False,
        "loads": 2,
        "evictions": 1,
        "load_s": 0.5,
        "last_used": 40.0,
        "last_error": None,
    }
    return ModelState(**{**values, **changes})  # type: ignore[arg-type]


def beat(*models: ModelState) -> dict[str, Any]:
    snapshot = EngineSnapshot(
        device="cpu",
        models=models,
        ledger=LedgerState(budget=100, weights=9, lent=1),
        batches=BatchStats(batches=3, items=7, real_tokens=50, padded_tokens=52),
        waiting_works=2,
        waiting_items=5,
        running=1,
        lost=False,
    )
    body = describe(snapshot, name="cpu@here", held=4, wall=1_000.0, clock=50.0)
    return dict(msgpack.unpackb(msgpack.packb(body)))


def test_a_beat_survives_the_wire() -> None:
    body = beat(model())
    assert (body["name"], body["at"], body["held"], body["waiting"]) == ("cpu@here", 1_000.0, 4, 5)
    assert body["ledger"] == {"budget": 100, "weights": 9, "lent": 1}
    assert body["stats"]["padded_tokens"] == 52


def test_moments_are_told_in_unix_time() -> None:
    [told] = beat(model(last_used=40.0))["models"]
    assert told["last_used"] == 990.0


def test_a_model_that_failed_says_why() -> None:
    failed = model(phase=Phase.FAILED, last_error=LoadFailed("no such file", LoadReason.NOT_FOUND))
    [told] = beat(failed)["models"]
    assert (told["state"], told["last_error"]["code"]) == ("failed", "model_load_failed")
