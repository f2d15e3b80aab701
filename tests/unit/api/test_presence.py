from __future__ import annotations

import msgpack
import pytest

from api.metrics import padding, worker_families
from api.presence import DEAD_AFTER_S, Worker, read_beat

NOW = 1000.0
BEAT = {
    "name": "w1",
    "at": NOW - 1.5,
    "pid": 7,
    "device": "cuda:1",
    "models": [{"key": "org/m", "state": "resident", "bytes": 5, "leases": 1}, {"key": "org/n", "state": "absent"}],
    "ledger": {"budget": 100, "weights": 5, "lent": 2},
    "stats": {"batches": 2, "items": 6, "real_tokens": 90, "padded_tokens": 120, "device_s": 0.5},
    "waiting": 3,
    "running": 2,
    "held": 4,
}


def test_a_beat_is_read() -> None:
    worker = read_beat(msgpack.packb(BEAT), NOW)
    assert worker is not None
    assert (worker.name, worker.age_s, worker.hardware, worker.held) == ("w1", 1.5, "cuda", 4)


def test_an_old_beat_is_a_dead_worker() -> None:
    assert read_beat(msgpack.packb(BEAT), NOW + DEAD_AFTER_S) is None


def test_a_bare_beat_is_enough() -> None:
    worker = read_beat(msgpack.packb({"name": "w", "at": NOW}), NOW)
    assert worker == Worker(name="w", age_s=0.0, device="cpu")


@pytest.mark.parametrize(
    "beat", [b"", b"\xc1", msgpack.packb([1]), msgpack.packb({"name": "w"}), msgpack.packb({"at": "x", "name": ""})]
)
def test_a_beat_that_is_none_is_passed_over(beat: bytes) -> None:
    assert read_beat(beat, NOW) is None


def test_padding_is_the_share_of_tokens_computed_in_vain() -> None:
    assert padding({"real_tokens": 90, "padded_tokens": 120}) == pytest.approx(0.25)
    assert padding({"real_tokens": 0, "padded_tokens": 0}) is None
    assert padding({}) is None


def test_each_worker_has_its_gauges() -> None:
    worker = read_beat(msgpack.packb(BEAT), NOW)
    assert worker is not None
    samples = {sample.name: sample for family in worker_families([worker]) for sample in family.samples}
    assert samples["roost_workers"].value == 1.0
    assert samples["roost_worker_padding_ratio"].labels == {"worker": "w1", "device": "cuda:1"}
    assert samples["roost_worker_padding_ratio"].value == pytest.approx(0.25)
    assert samples["roost_worker_weights_bytes"].value == 5.0
    assert samples["roost_worker_models_loaded"].value == 1.0


def test_what_a_worker_does_not_tell_has_no_sample() -> None:
    names = {s.name for f in worker_families([Worker("w", 0.0, "cpu")]) for s in f.samples}
    assert "roost_worker_padding_ratio" not in names
    assert "roost_worker_budget_bytes" not in names
