"""The committer on a real database that does not always take what it is given."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from queue import Queue

import psycopg
import pytest
import redis

from catalog.terms import Lane
from tasks import keys
from tasks.child.committer import Committer
from tasks.child.endings import Ending
from tasks.child.tally import Tally
from tasks.child.wakes import Wakes
from tasks.db import Database
from tasks.jobs import Job, State
from tasks.messages import Completion, Submission
from tasks.notices import unpack_replies
from tasks.settings import plain_redis

NewJob = Callable[..., Submission]
Row = Callable[[Submission], Job]
Report = Sequence[tuple[str, str, float, str | None]]
PATIENCE_S = 10.0


@contextmanager
def committing(database: Database, broker_url: str, endings: Sequence[Ending]) -> Iterator[Queue[Report]]:
    """What a committer reports that was given these as it started."""
    reports = Queue[Report]()
    with redis.Redis.from_url(plain_redis(broker_url)) as client:
        committer = Committer(database, Wakes(client), reports.put)
        committer.put(endings)
        committer.start()
        yield reports
        assert committer.close(PATIENCE_S)


def of(completion: Completion) -> Ending:
    return Ending(str(completion.submission.id), completion, 0.1)


def test_a_job_that_the_database_refuses_in_every_form_is_let_go_and_not_kept_for_ever(
    database: Database, broker_url: str, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    job = stored_job()
    database.run(lambda conn: conn.exec_driver_sql("ALTER TABLE jobs RENAME TO moved").close())
    with committing(database, broker_url, [of(ending(job))]) as reports:
        [(key, status, *_)] = reports.get(timeout=PATIENCE_S)
    assert (key, status) == (str(job.id), "dropped")


def test_a_refused_result_fails_its_job_alone_and_nobody_is_told_otherwise(
    database: Database,
    broker_url: str,
    hear: Callable[..., Callable[[], bytes]],
    stored_job: NewJob,
    ending: Callable[..., Completion],
    row: Row,
) -> None:
    told = hear(keys.reply("door-8"))
    good, bad = stored_job(), stored_job(reply_to="door-8")
    with committing(database, broker_url, [of(ending(good)), of(ending(bad, items_failed=2**40))]) as reports:
        [[_, *first], [_, *second]] = reports.get(timeout=PATIENCE_S)
    [reply] = unpack_replies(told())
    assert (first[0], row(good).state) == ("succeeded", State.SUCCEEDED)
    assert (second[0], second[2], row(bad).state) == ("failed", "result_refused", State.FAILED)
    assert (reply.state, reply.has_result, reply.error) == ("failed", False, row(bad).error)


def test_who_waits_for_a_result_does_not_wait_for_a_backfills_to_be_written(
    database: Database, database_url: str, broker_url: str, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    bulk, interactive = stored_job(lane=Lane.BULK), stored_job(lane=Lane.INTERACTIVE)
    with ExitStack() as stack:
        with psycopg.connect(database_url.replace("+psycopg", "")) as other:
            other.execute("SELECT 1 FROM jobs WHERE id = %s FOR UPDATE", [bulk.id])
            reports = stack.enter_context(committing(database, broker_url, [of(ending(bulk)), of(ending(interactive))]))
            [(key, status, *_)] = reports.get(timeout=PATIENCE_S)
            assert (key, status) == (str(interactive.id), "succeeded")
        [(key, status, *_)] = reports.get(timeout=PATIENCE_S)
    assert (key, status) == (str(bulk.id), "succeeded")


def test_a_result_waits_for_a_connection_and_is_not_taken_for_refused(
    database_url: str,
    broker_url: str,
    stored_job: NewJob,
    ending: Callable[..., Completion],
    row: Row,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = stored_job()
    narrow = Database(database_url, 1, patience_s=0.05)
    with ExitStack() as stack, narrow.exclusive(1):
        reports = stack.enter_context(committing(narrow, broker_url, [of(ending(job))]))
        end, never = time.monotonic() + PATIENCE_S, threading.Event()
        while not caplog.records:
            assert time.monotonic() < end, "the committer did not miss its connection"
            never.wait(0.01)
        later = stack.pop_all()
    with later:
        [(_, status, *_)] = reports.get(timeout=PATIENCE_S)
    narrow.close()
    assert (status, row(job).state) == ("succeeded", State.SUCCEEDED)


def test_waiting_for_the_database_is_told_as_time_of_the_commit(
    database_url: str,
    broker_url: str,
    stored_job: NewJob,
    ending: Callable[..., Completion],
    row: Row,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job, ended = stored_job(), time.time()
    parts = {"device_ms": 2.0, "commit_ms": 1.0, "total_ms": 3.0}
    tally = Tally()
    narrow = Database(database_url, 1, patience_s=0.2)
    with redis.Redis.from_url(plain_redis(broker_url)) as client:
        reports = Queue[Report]()
        committer = Committer(narrow, Wakes(client), reports.put, tally=tally)
        with narrow.exclusive(1):
            committer.put([of(ending(job, finished=ended, timings=parts))])
            committer.start()
            end, never = time.monotonic() + PATIENCE_S, threading.Event()
            while not caplog.records:
                assert time.monotonic() < end, "the committer did not miss its connection"
                never.wait(0.01)
        reports.get(timeout=PATIENCE_S)
        assert committer.close(PATIENCE_S)
    narrow.close()
    found = row(job)
    assert found.timings is not None
    assert found.timings["commit_ms"] >= 200.0
    assert found.timings["total_ms"] == pytest.approx(2.0 + found.timings["commit_ms"])
    assert found.finished_at is not None
    assert (found.finished_at.timestamp() - ended) * 1000 == pytest.approx(found.timings["commit_ms"] - 1.0, abs=1.0)
    assert tally.told()["ended"] == [["encode", "interactive", "succeeded", 1]]
