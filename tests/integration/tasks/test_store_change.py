"""Cancelling a job and trying it again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tasks.db import Database
from tasks.errors import JobNotFound, NotFinished
from tasks.jobs import Event, Job, State, move
from tasks.messages import Completion, Submission
from tasks.store import change, finish, read

NewJob = Callable[..., Submission]
Row = Callable[[Submission], Job]
NOW = datetime.now(UTC)


@pytest.fixture(scope="module", autouse=True)
def _now() -> None:
    """Tests are collected long before they run, and the database's clock goes on."""
    global NOW
    NOW = datetime.now(UTC)


@pytest.mark.parametrize("state", list(State))
def test_only_the_states_of_the_table_can_be_cancelled(
    database: Database, stored_job: NewJob, set_columns: Callable[..., None], state: State
) -> None:
    job = stored_job()
    set_columns(job, state=f"'{state.value}'")

    changed = database.run(change.cancel, job.id, "default")

    after = move(state, Event.CANCEL)
    assert changed.changed == (after is not None)
    assert changed.job.state is (after or state)


def test_a_job_cancelled_between_two_tries_has_no_error_left(
    database: Database, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    job = stored_job()
    error = {"code": "model_load_failed", "message": "m", "retryable": True}
    database.run(finish.finish, [ending(job, State.QUEUED, error=error, run_at=NOW.timestamp() + 60)])

    assert database.run(change.cancel, job.id, "default").job.error is None


def test_a_cancelled_job_is_kept_for_its_retention(database: Database, stored_job: NewJob) -> None:
    job = stored_job(retention_s=500)

    found = database.run(change.cancel, job.id, "default").job

    assert found.version == 2
    assert found.finished_at is not None
    assert found.expires_at == found.finished_at + timedelta(seconds=500)


@pytest.mark.parametrize("state", list(State))
def test_only_the_states_of_the_table_can_be_retried(
    database: Database, stored_job: NewJob, set_columns: Callable[..., None], state: State
) -> None:
    job = stored_job()
    set_columns(job, state=f"'{state.value}'")

    changed = database.run(change.retry, job.id, "default", NOW)

    after = move(state, Event.RETRY)
    assert changed.changed == (after is not None)
    assert changed.job.state is (after or state)


def test_a_retried_job_begins_again_with_nothing_of_its_past(
    database: Database, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    job = stored_job()
    database.run(finish.finish, [ending(job, State.QUEUED, run_at=job.created)])
    (second,) = database.run(read.submissions, [job.id])
    database.run(finish.finish, [ending(second, State.FAILED, result=b"items", items_failed=1)])

    found = database.run(change.retry, job.id, "default", NOW).job

    assert (found.attempt, found.fence, found.items_failed, found.error) == (1, 3, 0, None)
    assert (found.started_at, found.finished_at, found.expires_at, found.worker) == (None, None, None, None)
    assert (found.device_ms, found.timings, found.usage) == (None, None, None)
    with pytest.raises(NotFinished):
        database.run(read.result, job.id, "default")


def test_a_worker_that_still_runs_the_old_attempt_cannot_commit_it(
    database: Database, stored_job: NewJob, ending: Callable[..., Completion], row: Row
) -> None:
    job = stored_job()
    database.run(change.cancel, job.id, "default")
    database.run(change.retry, job.id, "default", NOW)

    assert not database.run(finish.finish, [ending(job)])[0].applied
    (message,) = database.run(read.submissions, [job.id])
    assert database.run(finish.finish, [ending(message)])[0].applied


def test_a_retry_has_as_much_time_as_the_job_had(database: Database, stored_job: NewJob) -> None:
    created = NOW - timedelta(hours=1)
    job = stored_job(created=created.timestamp(), deadline=created.timestamp() + 30)
    database.run(change.cancel, job.id, "default")

    found = database.run(change.retry, job.id, "default", NOW).job

    assert found.deadline_at == NOW + timedelta(seconds=30)
    assert found.created_at == created
    (message,) = database.run(read.submissions, [job.id])
    assert abs(message.created - NOW.timestamp()) < 1e-5


def test_a_job_past_its_retention_cannot_be_retried(
    database: Database, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    job = stored_job(retention_s=60)
    database.run(finish.finish, [ending(job, State.FAILED, finished=job.created - 1000)])

    with pytest.raises(JobNotFound):
        database.run(change.retry, job.id, "default", NOW)


def test_another_callers_job_is_not_found(database: Database, stored_job: NewJob, row: Row) -> None:
    job = stored_job()

    with pytest.raises(JobNotFound):
        database.run(change.cancel, job.id, "bert")
    with pytest.raises(JobNotFound):
        database.run(change.retry, job.id, "bert", NOW)
    assert row(job).state is State.QUEUED
