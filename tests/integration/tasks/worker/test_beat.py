"""A lost child is told in its last heartbeat, until the next one beats."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import Any

import msgpack
import pytest
from redis import Redis

from tasks import keys
from tasks.settings import plain_redis
from tasks.worker.beat import Beat
from tests.integration.tasks.worker.stage import Stage

NAME = "w@host"


@pytest.fixture
def client(broker_url: str) -> Redis:
    return Redis.from_url(plain_redis(broker_url))


@pytest.fixture
def beat(broker_url: str) -> Beat:
    return Beat(plain_redis(broker_url), NAME)


def _write(client: Redis, name: str, pid: int, **more: object) -> None:
    client.hset(keys.WORKERS, name, msgpack.packb({"name": name, "pid": pid, "at": time.time(), "lost": False, **more}))


def _read(client: Redis, name: str = NAME) -> Mapping[str, Any]:
    body: Any = client.hget(keys.WORKERS, name)
    return msgpack.unpackb(body) if body else {}


def test_a_lost_child_s_beat_says_so_and_keeps_the_rest(client: Redis, beat: Beat) -> None:
    _write(client, NAME, 7, at=1.0, device="cuda:0")
    assert beat.lost(7)
    told = _read(client)
    assert (told["lost"], told["device"], told["pid"]) == (True, "cuda:0", 7)
    assert told["at"] > time.time() - 60


def test_the_beat_of_the_next_child_stays(client: Redis, beat: Beat) -> None:
    _write(client, NAME, 8)
    assert beat.lost(7)
    assert beat.gone(7)
    assert _read(client)["lost"] is False


def test_a_loss_is_told_anew_while_the_next_children_do_not_get_so_far(client: Redis, beat: Beat) -> None:
    _write(client, NAME, 7, lost=True, at=1.0)
    assert beat.lost(8)
    assert _read(client)["at"] > 1.0


def test_the_beat_of_a_worker_that_ends_goes_with_it(client: Redis, beat: Beat) -> None:
    _write(client, NAME, 7)
    assert beat.gone(7)
    assert not _read(client)


def test_without_a_beat_there_is_nothing_to_say(client: Redis, beat: Beat) -> None:
    assert beat.lost(7)
    assert not _read(client)


def test_what_cannot_be_said_is_known(client: Redis) -> None:
    assert not Beat("redis://127.0.0.1:1/0", NAME).lost(7)
    client.close()


@pytest.mark.parametrize("do", ["die", "lose_device"])
def test_a_worker_says_that_its_child_is_lost_until_the_next_one_beats(stage: Stage, client: Redis, do: str) -> None:
    stage.start(child_delay=1)
    stage.until(lambda: client.exists("test:child"), 60.0)
    name = str(next(iter(stage.books.client.hgetall(keys.PLACES))))
    first = stage.books.child()
    _write(client, name, first)
    if do == "die":
        os.kill(first, signal.SIGKILL)
    else:
        stage.publish(stage.job(do=do, once=True))
    stage.until(lambda: _read(client, name)["lost"])
    stage.until(lambda: stage.books.child() != first)
    _write(client, name, stage.books.child())
    job = stage.job()
    stage.publish(job)
    stage.until(lambda: str(job.id) in stage.books.ended())
    assert _read(client, name)["lost"] is False
