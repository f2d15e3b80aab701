from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgpack
import pytest
from redis.asyncio import Redis

from api.presence import DEAD_AFTER_S, Presence, Worker, read_beat, too_large

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


def worker(name: str, *, models: Sequence[Mapping[str, Any]] = (), **reasons: str) -> Worker:
    return Worker(name, 0.0, "cpu", models=models, too_large=reasons)


def test_a_model_is_too_large_when_every_live_worker_says_so() -> None:
    both = [worker("a", giant="more than a has"), worker("b", giant="more than b has")]
    assert too_large("giant", both) == "more than a has"
    assert too_large("other", both) is None


def test_a_model_that_fits_one_worker_is_not_too_large() -> None:
    assert too_large("giant", [worker("a", giant="more than a has"), worker("b")]) is None


def test_nothing_is_too_large_where_nobody_is() -> None:
    assert too_large("giant", []) is None


@pytest.mark.parametrize(
    ("state", "code", "refused"),
    [("failed", "model_too_large", True), ("failed", "model_load_failed", False), ("absent", "model_too_large", False)],
)
def test_a_load_that_failed_for_size_says_so_too(state: str, code: str, refused: bool) -> None:
    model = {"key": "giant", "state": state, "last_error": {"code": code, "message": "it is too large"}}
    assert too_large("giant", [worker("a", models=(model,))]) == ("it is too large" if refused else None)


class Late:
    """Valkey that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[dict[bytes, bytes]]] = []

    def hgetall(self, _key: str) -> asyncio.Future[dict[bytes, bytes]]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


async def test_a_look_that_began_before_another_and_ends_after_it_says_nothing_new() -> None:
    valkey = Late()
    presence = Presence(cast("Redis", valkey), clock=lambda: NOW)
    first = asyncio.ensure_future(presence.live())
    second = asyncio.ensure_future(presence.live())
    await asyncio.sleep(0)  # both ask

    valkey.asked[1].set_result({b"w1": msgpack.packb(BEAT)})
    await second
    valkey.asked[0].set_result({})

    assert await first == []
    assert presence.hardware == {"cuda"}
    assert [one.name for one in await presence.lately(60.0)] == ["w1"]
