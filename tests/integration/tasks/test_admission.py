"""The script in Valkey and the model of it that a process goes by alone say the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
import redis

from tasks import keys
from tasks.admission import ADMIT, admit_arguments, admit_keys
from tasks.settings import plain_redis
from tasks.tenant_limits import Bucket, TenantLimits

ALLOWED_S = 0.25
"""How much later than planned a step may come on a busy machine."""


@pytest.fixture
def broker(broker_url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(plain_redis(broker_url))
    yield client
    client.close()


@pytest.mark.parametrize("left", [0.0, 0.5])
@pytest.mark.parametrize(("rate", "burst"), [(0.01, 1), (0.02, 3), (0.1, 2)])
def test_the_script_lets_in_what_the_model_does(broker: redis.Redis, rate: float, burst: int, left: float) -> None:
    limits = TenantLimits(requests_per_s=rate, burst=burst)
    admit = broker.register_script(ADMIT)
    began = now = time.time()
    bucket = Bucket(burst, now)
    # In parts of the time that one job takes to earn, none of them near a whole.
    for part in (0.0, 0.0, 0.3, 0.0, 0.4, 0.6, 0.0, 1.5, 0.0, 0.2, 50.0, 0.0, 0.0, 0.0, 0.0):
        _move_back(broker, part / rate)
        now += part / rate
        bucket, wait_s = bucket.taken(limits, now, left)
        said = admit(keys=admit_keys("one"), args=admit_arguments(limits, uuid4(), left))
        assert (said[0] == b"rate") == (wait_s > 0), f"{part} later: {said}, {wait_s}"
        if wait_s:
            assert float(said[1]) == pytest.approx(wait_s, abs=time.time() - began + ALLOWED_S)


def test_a_job_that_is_refused_costs_nothing_and_one_that_ends_leaves_its_place(broker: redis.Redis) -> None:
    limits = TenantLimits(requests_per_s=0.001, burst=2, open_jobs=1)
    admit = broker.register_script(ADMIT)
    first = uuid4()

    def ask() -> bytes:
        said: list[bytes] = admit(keys=admit_keys("one"), args=admit_arguments(limits, uuid4()))
        return said[0]

    assert admit(keys=admit_keys("one"), args=admit_arguments(limits, first)) == [b"ok"]
    assert [ask() for _ in range(5)] == [b"open"] * 5
    broker.zrem(keys.open_jobs("one"), str(first))
    assert [ask(), ask()] == [b"ok", b"rate"]


def test_tenants_are_counted_apart_and_what_is_full_again_is_forgotten(broker: redis.Redis) -> None:
    limits = TenantLimits(requests_per_s=1.0, burst=1)
    admit = broker.register_script(ADMIT)
    said = [admit(keys=admit_keys(name), args=admit_arguments(limits, uuid4()))[0] for name in ("one", "one", "two")]
    assert said == [b"ok", b"rate", b"ok"]
    assert 0 < int(broker.ttl(keys.rate("one"))) <= 61


def _move_back(broker: redis.Redis, seconds: float) -> None:
    """Let time pass for the bucket in Valkey."""
    at = broker.hget(keys.rate("one"), "at")
    if at is not None:
        broker.hset(keys.rate("one"), "at", f"{float(at) - seconds:.6f}")
