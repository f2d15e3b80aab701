"""What jobs leave: nothing of those that are not kept, and no blob that no row names."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tasks.contents import new_key
from tasks.db import Database
from tasks.errors import JobNotFound, JobNotTerminal, ResultNotStored
from tasks.jobs import Job, State
from tasks.messages import Completion, Submission
from tasks.store import accept, change, claim, finish, read, spent, sweep

NewJob = Callable[..., Submission]
Ending = Callable[..., Completion]
Row = Callable[[Submission], Job]
SetColumns = Callable[..., None]


def now() -> datetime:
    """When it is asked for: what is read once at the start is long ago by the end of a long run."""
    return datetime.now(UTC)


CONTENT = "SELECT inputs, inputs_blob, result, result_blob, options FROM jobs WHERE id = %(id)s"


def content(database: Database, job: Submission) -> tuple[Any, ...]:
    """What the row holds of what a caller sent or got."""
    return database.run(lambda conn: tuple(conn.exec_driver_sql(CONTENT, {"id": job.id}).one()))


def due(database: Database) -> set[str]:
    return set(database.run(spent.due, 100))


def finished(database: Database, job: Submission, done: Completion) -> None:
    (ended,) = database.run(finish.finish, [done])
    assert ended.applied


def cancelled(database: Database, job: Submission, done: Completion) -> None:
    assert database.run(change.cancel, job.id, "default").changed


def expired(database: Database, job: Submission, done: Completion) -> None:
    database.run(lambda conn: conn.exec_driver_sql("UPDATE jobs SET deadline_at = now() - interval '1 minute'").close())
    assert database.run(sweep.expire, now(), 10)


def given_up_by_the_sweep(database: Database, job: Submission, done: Completion) -> None:
    database.run(claim.start, [(job.id, 1)], "one", now() - timedelta(minutes=1))
    (moved,) = database.run(sweep.reclaim, now(), 10, 1)
    assert moved.state is State.FAILED


def given_up_by_a_claim(database: Database, job: Submission, done: Completion) -> None:
    (answer,) = database.run(claim.claim, [(job, claim.Lost.RUNNING)], "two", claim.Limits(1, 20))
    assert answer.verdict is claim.Verdict.GIVEN_UP


@pytest.mark.parametrize(
    "end", [finished, cancelled, expired, given_up_by_the_sweep, given_up_by_a_claim], ids=lambda end: end.__name__
)
def test_the_inputs_of_a_job_that_is_not_kept_go_with_its_end(
    database: Database, stored_job: NewJob, ending: Ending, end: Callable[..., None]
) -> None:
    job = stored_job(keep=False)
    end(database, job, ending(job))

    assert content(database, job)[:2] == (None, None)


@pytest.mark.parametrize("end", [finished, cancelled], ids=lambda end: end.__name__)
def test_and_so_does_their_blob(
    database: Database, stored_job: NewJob, ending: Ending, end: Callable[..., None]
) -> None:
    job = stored_job(keep=False, inputs=b"", inputs_blob="jobs/01/key")
    end(database, job, ending(job))

    assert content(database, job)[:2] == (None, None)
    assert due(database) == {"jobs/01/key"}


def test_those_of_other_jobs_stay_for_a_retry(database: Database, stored_job: NewJob, ending: Ending) -> None:
    small, large = stored_job(), stored_job(inputs=b"", inputs_blob="jobs/01/key")
    database.run(finish.finish, [ending(small), ending(large, State.FAILED)])

    assert content(database, small)[:2] == (b"inputs", None)
    assert content(database, large)[:2] == (None, "jobs/01/key")
    assert due(database) == set()


def test_a_job_written_when_it_ended_never_had_its_inputs_in_a_row(
    database: Database, new_job: NewJob, ending: Ending
) -> None:
    job = new_job(keep=False, stored=False)
    finished(database, job, ending(job))

    assert content(database, job)[0] is None


def test_one_that_is_tried_again_keeps_its_inputs_until_it_ends(
    database: Database, stored_job: NewJob, ending: Ending
) -> None:
    job = stored_job(keep=False)
    finished(database, job, ending(job, State.QUEUED, run_at=time.time()))
    assert content(database, job)[0] == b"inputs"


def test_the_result_goes_once_it_was_answered_and_the_row_stays(
    database: Database, stored_job: NewJob, ending: Ending, row: Row
) -> None:
    kept = stored_job()
    job = stored_job(keep=False, options={"labels": ["secret"]})
    done = ending(job, result=None, result_blob="jobs/02/result")
    database.run(finish.finish, [done, ending(kept)])
    assert database.run(read.result, job.id, "default").blob == "jobs/02/result"

    assert database.run(spent.forget_results, [job.id, kept.id]) == ["jobs/02/result"]

    assert content(database, job) == (None, None, None, None, {})
    assert due(database) == {"jobs/02/result"}
    assert (row(job).state, row(job).usage) == (State.SUCCEEDED, {"tokens": 3})
    with pytest.raises(ResultNotStored):
        database.run(read.result, job.id, "default")
    assert database.run(read.result, kept.id, "default").rows == b"vectors"


def test_a_result_that_nobody_fetches_goes_after_a_while(
    database: Database, stored_job: NewJob, ending: Ending, set_columns: SetColumns
) -> None:
    early, late, cancelled_ = stored_job(keep=False), stored_job(keep=False), stored_job(keep=False, options={"a": 1})
    database.run(finish.finish, [ending(early), ending(late)])
    database.run(change.cancel, cancelled_.id, "default")
    set_columns([early, cancelled_], finished_at="now() - interval '11 minutes'")

    assert database.run(spent.forget_late, now() - timedelta(minutes=10), 10) == 2
    assert database.run(spent.forget_late, now() - timedelta(minutes=10), 10) == 0

    assert content(database, early) == content(database, cancelled_) == (None, None, None, None, {})
    assert content(database, late)[2] == b"vectors"


def test_a_job_that_is_not_kept_is_not_tried_again(database: Database, stored_job: NewJob, ending: Ending) -> None:
    job = stored_job(keep=False)
    finished(database, job, ending(job, State.FAILED))

    changed = database.run(change.retry, job.id, "default", now())

    assert (changed.changed, changed.job.state, changed.job.keep) == (False, State.FAILED, False)


def test_a_retry_keeps_the_inputs_and_frees_the_old_result(
    database: Database, stored_job: NewJob, ending: Ending
) -> None:
    job = stored_job(inputs=b"", inputs_blob="jobs/01/inputs")
    finished(database, job, ending(job, State.FAILED, result_blob="jobs/01/result"))

    assert database.run(change.retry, job.id, "default", now()).changed

    assert content(database, job)[:4] == (None, "jobs/01/inputs", None, None)
    assert due(database) == {"jobs/01/result"}
    (again,) = database.run(read.submissions, [job.id])
    assert (again.inputs, again.inputs_blob) == (b"", "jobs/01/inputs")


def test_retention_takes_the_blobs_along(
    database: Database, stored_job: NewJob, ending: Ending, set_columns: SetColumns
) -> None:
    small, large = stored_job(), stored_job(inputs=b"", inputs_blob="jobs/01/inputs")
    database.run(finish.finish, [ending(small), ending(large, result=None, result_blob="jobs/01/result")])
    set_columns([small, large], expires_at="now() - interval '1 s'")

    assert database.run(sweep.delete, datetime.now(UTC), 10) == 2

    assert due(database) == {"jobs/01/inputs", "jobs/01/result"}
    database.run(spent.done, ["jobs/01/inputs"])
    assert due(database) == {"jobs/01/result"}


def test_a_key_that_is_free_again_takes_the_blobs_of_the_old_job_along(
    database: Database, stored_job: NewJob, new_job: NewJob, ending: Ending, set_columns: SetColumns
) -> None:
    old = stored_job(idempotency_key="k", inputs=b"", inputs_blob="jobs/01/inputs")
    finished(database, old, ending(old))
    set_columns(old, expires_at="now() - interval '1 s'")

    assert database.run(accept.insert, [new_job(idempotency_key="k")]).existing == {}
    assert due(database) == {"jobs/01/inputs"}


def test_an_ended_job_is_deleted_with_its_blobs_and_an_open_one_is_not(
    database: Database, stored_job: NewJob, ending: Ending
) -> None:
    job = stored_job(inputs=b"", inputs_blob="jobs/01/inputs")
    with pytest.raises(JobNotTerminal):
        database.run(change.delete, job.id, "default")
    finished(database, job, ending(job))
    with pytest.raises(JobNotFound):
        database.run(change.delete, job.id, "other")

    assert database.run(change.delete, job.id, "default") == ["jobs/01/inputs"]
    assert due(database) == {"jobs/01/inputs"}
    with pytest.raises(JobNotFound):
        database.run(change.delete, job.id, "default")


def test_the_blobs_of_inputs_that_were_there_already_are_found_out(database: Database, stored_job: NewJob) -> None:
    job = stored_job(inputs=b"", inputs_blob="jobs/01/first")
    again = replace(job, inputs_blob="jobs/01/second")
    database.run(accept.insert, [again])

    assert database.run(accept.unused, [job, again]) == ["jobs/01/second"]


def test_a_blob_belongs_to_its_job_as_long_as_the_row_names_it(database: Database, stored_job: NewJob) -> None:
    job = stored_job()
    named, other = new_key(job.id), new_key(job.id)
    statement = "UPDATE jobs SET inputs_blob = %(key)s"
    database.run(lambda conn: conn.exec_driver_sql(statement, {"key": named}).close())

    assert database.run(spent.named, [named, other, "jobs/no/key", new_key(replace(job).id)]) == {named}


def test_a_claim_brings_the_key_and_the_options_that_did_not_travel(database: Database, stored_job: NewJob) -> None:
    job = stored_job(inputs=b"", inputs_blob="jobs/01/inputs", options={"labels": ["a"]})
    sent = replace(job, options={}, inputs_blob=None)

    (answer,) = database.run(claim.claim, [(sent, claim.Lost.UNKNOWN)], "two", claim.Limits(3, 20))

    assert answer.job is not None
    assert (answer.job.inputs_blob, answer.job.options) == ("jobs/01/inputs", {"labels": ["a"]})
    assert database.run(claim.rest, [job.id]) == {job.id: claim.Rest(b"", "jobs/01/inputs", {"labels": ["a"]})}
