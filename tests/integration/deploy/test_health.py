"""The checks of workers and of the feeder read the beats that these leave in Valkey."""

from __future__ import annotations

import socket
import time

import msgpack
import pytest
import redis

from deploy import health
from tasks import keys
from tasks.settings import Settings


@pytest.fixture
def settings(broker_url: str) -> Settings:
    return Settings(broker_url=broker_url)


def _beat(settings: Settings, name: str, at: float, *, lost: bool = False) -> None:
    with redis.Redis.from_url(settings.redis_url) as client:
        client.hset(keys.WORKERS, name, msgpack.packb({"name": name, "at": at, "lost": lost}))


def test_a_worker_that_beat_a_moment_ago_is_well(settings: Settings) -> None:
    _beat(settings, f"cpu@{socket.gethostname()}", time.time())
    health.worker(settings)


def test_a_worker_that_fell_silent_is_unwell(settings: Settings) -> None:
    _beat(settings, f"cpu@{socket.gethostname()}", time.time() - 2 * health.FRESH_S)
    with pytest.raises(health.Unwell, match="30 s old"):
        health.worker(settings)


def test_a_worker_whose_device_is_lost_is_unwell(settings: Settings) -> None:
    _beat(settings, f"cpu@{socket.gethostname()}", time.time(), lost=True)
    with pytest.raises(health.Unwell, match="does not compute"):
        health.worker(settings)


def test_the_beat_of_another_host_does_not_make_this_one_well(settings: Settings) -> None:
    _beat(settings, "cpu@another-host", time.time())
    with pytest.raises(health.Unwell, match="no worker"):
        health.worker(settings)


def _fed(settings: Settings, host: str, at: float) -> None:
    with redis.Redis.from_url(settings.redis_url) as client:
        client.set(keys.feeder(host), repr(at))


def test_a_feeder_that_looked_a_moment_ago_is_well(settings: Settings) -> None:
    _fed(settings, socket.gethostname(), time.time())
    health.feeder(settings)


def test_a_feeder_that_fell_silent_is_unwell(settings: Settings) -> None:
    _fed(settings, socket.gethostname(), time.time() - 2 * health.FRESH_S)
    with pytest.raises(health.Unwell, match="30 s ago"):
        health.feeder(settings)


def test_the_feeder_of_another_host_does_not_make_this_one_well(settings: Settings) -> None:
    _fed(settings, "another-host", time.time())
    with pytest.raises(health.Unwell, match="no feeder"):
        health.feeder(settings)
