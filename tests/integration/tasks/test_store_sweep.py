"""What time alone brings about."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from catalog.terms import Lane
from tasks.db import Database
from tasks.jobs import Event, Job, State, move
from tasks.messages import Completion, Submission
from tasks.store import claim, finish, read, sweep

NewJob = Callable[..., Submission]
Row = Callable[[Submission], Job]
NOW = datetime.now(UTC)
PAST = (NOW - timedelta(seconds=10)).timestamp()


@pytest.fixture(scope="module", autouse=True)
def _now() -> None:
    """Tests are collected long before they run, and the database's clock goes on."""
    global NOW, PAST
    NOW = datetime.now(UTC)
    PAST = (NOW - timedelta(seconds=10)).timestamp()


def run(database: Database, job: Submission, lease_until: datetime) -> None:
    assert job.id in database.run(claim.start, [(job.id, job.fence)], "one", lease_until)


@pytest.mark.parametrize("state", list(State))
def test_a_passed_deadline_ends_what_is_open(
    database: Database, stored_job: NewJob, set_columns: Callable[..., None], row: Row, state: State
) -> None:
    job = stored_job(deadline=PAST)
    set_columns(job, state=f"'{state.value}'")

    moved = database.run(sweep.expire, NOW, 10)

    after = move(state, Event.EXPIRE)
    assert [m.id for m in moved] == ([job.id] if after else [])
    assert row(job).state is (after or state)


def test_an_expired_job_says_so_and_is_kept_for_its_retention(database: Database, stored_job: NewJob, row: Row) -> None:
    job = stored_job(deadline=PAST, retention_s=500)

    assert database.run(sweep.expire, NOW, 10) == [sweep.Moved(job.id, State.EXPIRED, 2)]

    found = row(job)
    assert found.error is not None
    assert found.error["code"] == "deadline_passed"
    assert (found.finished_at, found.expires_at) == (NOW, NOW + timedelta(seconds=500))


def test_a_deadline_to_come_ends_nothing(database: Database, stored_job: NewJob) -> None:
    stored_job(deadline=NOW.timestamp() + 60)
    stored_job()

    assert database.run(sweep.expire, NOW, 10) == []


def test_a_job_of_a_silent_worker_is_queued_and_due_at_once(database: Database, stored_job: NewJob, row: Row) -> None:
    job = stored_job()
    run(database, job, NOW - timedelta(seconds=1))

    assert database.run(sweep.reclaim, NOW, 10, 3) == [sweep.Moved(job.id, State.QUEUED, 3)]

    assert [waiting.id for waiting in database.run(sweep.due, NOW, 10)] == [job.id]
    assert row(job).attempt == 1


def test_a_server_that_has_just_come_back_gives_workers_the_time_of_a_lease_to_be_heard(
    database: Database, stored_job: NewJob, row: Row
) -> None:
    job = stored_job(attempt=3)
    run(database, job, NOW - timedelta(seconds=1))

    assert database.run(sweep.reclaim, NOW, 10, 3, timedelta(days=1)) == []
    assert row(job).state is State.RUNNING


def test_the_next_claim_counts_the_attempt_that_was_taken_back(database: Database, stored_job: NewJob) -> None:
    job = stored_job()
    run(database, job, NOW - timedelta(seconds=1))
    database.run(sweep.reclaim, NOW, 10, 3)
    (message,) = database.run(read.submissions, [job.id])

    (claimed,) = database.run(claim.claim, [(message, claim.Lost.NO)], "two", claim.Limits(3, 20))

    assert claimed.job is not None
    assert (claimed.job.attempt, claimed.job.fence) == (2, 2)


def test_a_job_lost_on_its_last_attempt_is_given_up(database: Database, stored_job: NewJob, row: Row) -> None:
    job = stored_job(attempt=3)
    run(database, job, NOW - timedelta(seconds=1))

    assert database.run(sweep.reclaim, NOW, 10, 3) == [sweep.Moved(job.id, State.FAILED, 3)]

    found = row(job)
    assert found.error is not None
    assert found.error["code"] == "worker_lost"
    assert found.expires_at == NOW + timedelta(seconds=job.retention_s)


def test_a_job_whose_lease_lasts_is_left_alone(database: Database, stored_job: NewJob) -> None:
    run(database, stored_job(), NOW + timedelta(seconds=30))

    assert database.run(sweep.reclaim, NOW, 10, 3) == []


def test_a_worker_that_was_only_slow_may_still_commit_until_another_claims(
    database: Database, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    job = stored_job()
    run(database, job, NOW - timedelta(seconds=1))
    database.run(sweep.reclaim, NOW, 10, 3)

    assert database.run(finish.finish, [ending(job)])[0].applied


def test_queued_jobs_are_walked_through_by_id(database: Database, stored_job: NewJob) -> None:
    jobs = [stored_job(created=PAST) for _ in range(5)]
    young = stored_job(created=NOW.timestamp() + 60)

    first = database.run(sweep.unseen, NOW, UUID(int=0), 3)
    rest = database.run(sweep.unseen, NOW, first[-1].id, 3)

    assert [waiting.id for waiting in first + rest] == [job.id for job in jobs]
    assert young.id not in {waiting.id for waiting in first + rest}


def test_a_job_is_due_again_when_its_next_look_has_come(database: Database, stored_job: NewJob) -> None:
    job = stored_job(created=PAST)
    database.run(sweep.looked, {job.id: NOW + timedelta(seconds=30)})

    assert database.run(sweep.unseen, NOW, UUID(int=0), 10) == []
    assert database.run(sweep.due, NOW, 10) == []
    assert [w.id for w in database.run(sweep.due, NOW + timedelta(seconds=30), 10)] == [job.id]


def test_a_requeued_job_is_due_at_its_time(
    database: Database, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    job = stored_job()
    database.run(finish.finish, [ending(job, State.QUEUED, run_at=NOW.timestamp() + 8)])

    assert database.run(sweep.due, NOW + timedelta(seconds=7), 10) == []
    assert [w.id for w in database.run(sweep.due, NOW + timedelta(seconds=9), 10)] == [job.id]


def test_jobs_past_their_retention_are_deleted_in_bounded_sets(
    database: Database, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    old = [stored_job(retention_s=60) for _ in range(3)]
    kept, waiting = stored_job(), stored_job()
    database.run(finish.finish, [*(ending(job, finished=PAST - 100) for job in old), ending(kept)])

    assert [database.run(sweep.delete, NOW, 2) for _ in range(3)] == [2, 1, 0]
    assert set(database.run(read.jobs, [job.id for job in (*old, kept, waiting)])) == {kept.id, waiting.id}


def test_rows_that_another_transaction_holds_are_left_for_the_next_sweep(
    database: Database, stored_job: NewJob
) -> None:
    held, free = stored_job(deadline=PAST), stored_job(deadline=PAST)

    def while_held() -> list[sweep.Moved]:
        with database._engine.begin() as conn:
            conn.exec_driver_sql("SELECT FROM jobs WHERE id = %(id)s FOR UPDATE", {"id": held.id})
            return database.run(sweep.expire, NOW, 10)

    assert [moved.id for moved in while_held()] == [free.id]
    assert [moved.id for moved in database.run(sweep.expire, NOW, 10)] == [held.id]


def test_open_jobs_are_counted_by_state_and_lane(
    database: Database, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    running = stored_job(lane=Lane.BULK)
    stored_job()
    stored_job()
    database.run(finish.finish, [ending(stored_job())])
    run(database, running, NOW)

    assert database.run(sweep.counts) == {
        (State.QUEUED, Lane.INTERACTIVE): 2,
        (State.RUNNING, Lane.BULK): 1,
    }


def test_the_delay_of_the_queue_is_the_median_wait_of_what_started(
    database: Database, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    assert database.run(sweep.queue_delay) == 0.0
    for waited in (1.0, 2.0, 30.0):
        job = stored_job()
        database.run(finish.finish, [ending(job, started=job.created + waited)])
    stored_job()

    assert abs(database.run(sweep.queue_delay) - 2.0) < 0.01


def test_what_is_remembered_is_recalled(database: Database) -> None:
    assert database.run(sweep.recall, "a") is None
    database.run(sweep.remember, "a", "1")
    database.run(sweep.remember, "a", "2")

    assert database.run(sweep.recall, "a") == "2"
