"""What a beat says."""

from __future__ import annotations

from typing import Any

import msgpack

from engine.errors import LoadFailed, LoadReason
from engine.snapshot import Departure, EngineSnapshot, LedgerState, ModelState, ModelWork, Phase, Reason
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


def beat(*models: ModelState, **more: Any) -> dict[str, Any]:
    snapshot = EngineSnapshot(
        device="cpu",
        models=models,
        ledger=LedgerState(budget=100, weights=9, lent=1),
        batches=BatchStats(batches=3, items=7, real_tokens=50, padded_tokens=52),
        waiting_works=2,
        waiting_items=5,
        running=1,
        lost=False,
        **more,
    )
    body = describe(snapshot, name="cpu@here", held=4, wall=1_000.0, clock=50.0)
    return dict(msgpack.unpackb(msgpack.packb(body)))


def test_a_beat_survives_the_wire() -> None:
    body = beat(model())
    assert (body["name"], body["at"], body["held"], body["waiting"]) == ("cpu@here", 1_000.0, 4, 5)
    assert body["ledger"].items() >= {"budget": 100, "weights": 9, "lent": 1, "foreign": 0}.items()
    assert body["stats"]["padded_tokens"] == 52


def test_moments_are_told_in_unix_time() -> None:
    [told] = beat(model(last_used=40.0))["models"]
    assert told["last_used"] == 990.0


def test_a_model_that_failed_says_why() -> None:
    failed = model(phase=Phase.FAILED, last_error=LoadFailed("no such file", LoadReason.NOT_FOUND))
    [told] = beat(failed)["models"]
    assert (told["state"], told["last_error"]["code"]) == ("failed", "model_load_failed")


def test_a_model_tells_all_that_it_takes_and_why_it_left() -> None:
    gone = model(
        estimate=8,
        activations=3,
        host_bytes=9,
        restores=2,
        restore_s=0.25,
        evicted={Reason.ROOM: 1},
        dropped={Reason.MEMORY: 2},
        departure=Departure(45.0, Reason.ROOM, "other"),
        retry_at=55.0,
        comes_at=56.0,
        work=ModelWork(passes=2, items=5, seconds=0.5, predicted_s=0.4),
    )
    [told] = beat(gone)["models"]
    assert (told["estimate"], told["activations"], told["host_bytes"]) == (8, 3, 9)
    assert (told["restores"], told["restore_s"], told["evicted"]) == (2, 0.25, {"room": 1})
    assert told["dropped"] == {"memory": 2}
    assert told["departure"] == {"at": 995.0, "reason": "room", "by": "other"}
    assert (told["retry_at"], told["comes_at"]) == (1_005.0, 1_006.0)
    assert (told["work"]["passes"], len(told["work"]["ratios"])) == (2, len(beat()["ratio_le"]) + 1)


def test_the_device_tells_its_hardware_its_sequences_and_what_can_never_fit() -> None:
    body = beat(kind="cuda:h200", sequences=4, too_large={"giant": "It takes too much."})
    assert (body["kind"], body["sequences"], body["too_large"]) == ("cuda:h200", 4, {"giant": "It takes too much."})


def test_a_beat_of_fifty_busy_models_is_small() -> None:
    work = ModelWork(9**6, 9**7, 9**9, 9**9, 9**4 / 7, 9**4 / 7, (9**5,) * len(ModelWork().ratios))
    busy = model(model="some-organisation/some-model-of-a-long-name-v2", estimate=9**10, host_bytes=9**10, work=work)
    assert len(msgpack.packb(beat(*[busy] * 50))) < 32 * 1024
