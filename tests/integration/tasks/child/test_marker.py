"""The marker on a real database that comes and goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgpack
import pytest
import redis

from tasks.child.hand import Hand, Held
from tasks.child.marker import Marker
from tasks.child.wakes import Wakes
from tasks.db import Database
from tasks.jobs import Job, State
from tasks.messages import Submission
from tasks.settings import plain_redis

NewJob = Callable[..., Submission]
Row = Callable[[Submission], Job]
PATIENCE_S = 10.0


@contextmanager
def marking(database: Database, broker_url: str, hand: Hand) -> Iterator[Marker]:
    with redis.Redis.from_url(plain_redis(broker_url)) as client:
        marker = Marker(hand, database, Wakes(client), worker="one", lease_s=60, taken=lambda _: None)
        marker.start()
        yield marker
        marker.close()


def until(condition: Callable[[], object]) -> None:
    end, never = time.monotonic() + PATIENCE_S, threading.Event()
    while not condition():
        assert time.monotonic() < end
        never.wait(0.01)


def test_a_job_that_began_while_the_database_was_away_is_marked_when_it_is_back(
    database: Database, broker_url: str, stored_job: NewJob, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    job = stored_job(inputs=msgpack.packb([{"text": "a"}]))
    hand = Hand()
    now = time.monotonic()
    hand.add(str(job.id), Held(job, [], received=time.time(), arrived=now))
    database.run(lambda conn: conn.exec_driver_sql("ALTER TABLE jobs RENAME TO away").close())
    with marking(database, broker_url, hand) as marker:
        marker.began(hand.started([str(job.id)], now))
        until(lambda: caplog.records)
        database.run(lambda conn: conn.exec_driver_sql("ALTER TABLE away RENAME TO jobs").close())
        until(lambda: row(job).state is State.RUNNING)
