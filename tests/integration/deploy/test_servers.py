"""The fixtures themselves: a fresh database and an empty broker for each test."""

from __future__ import annotations

import psycopg
import pytest
import redis

from tasks.settings import plain_redis


def _plain(url: str) -> str:
    return url.replace("+psycopg", "")


@pytest.mark.parametrize("round_number", [1, 2])
def test_each_test_gets_an_empty_migrated_database(database_url: str, round_number: int) -> None:
    with psycopg.connect(_plain(database_url)) as connection:
        assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
        connection.execute("CREATE TABLE left_over ()")


@pytest.mark.parametrize("round_number", [1, 2])
def test_each_test_gets_an_empty_broker_database(broker_url: str, round_number: int) -> None:
    with redis.Redis.from_url(plain_redis(broker_url)) as client:
        assert client.dbsize() == 0
        client.set("left over", "1")


def test_the_broker_never_evicts(broker_url: str) -> None:
    with redis.Redis.from_url(plain_redis(broker_url)) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendonly") == {"appendonly": "yes"}
