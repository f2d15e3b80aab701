"""Results and final states, under the fence."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Barrier
from uuid import UUID

import pytest

from tasks.db import Database
from tasks.jobs import Event, Job, State, move
from tasks.messages import Completion, Submission
from tasks.store import accept, change, claim, finish, read

NewJob = Callable[..., Submission]
Ending = Callable[..., Completion]
LIMITS = claim.Limits(3, 20)


def test_a_batch_of_stored_and_new_jobs_is_written_in_the_order_asked(
    database: Database, stored_job: NewJob, new_job: NewJob, ending: Ending, row: Callable[[Submission], Job]
) -> None:
    jobs = [new_job(stored=False, tags=("t",)), stored_job(), new_job(stored=False)]

    ended = database.run(finish.finish, [ending(job) for job in jobs])

    assert ended == [
        finish.Ended(jobs[0].id, 1, State.SUCCEEDED, applied=True),
        finish.Ended(jobs[1].id, 2, State.SUCCEEDED, applied=True),
        finish.Ended(jobs[2].id, 1, State.SUCCEEDED, applied=True),
    ]
    assert row(jobs[0]).tags == ("t",)
    for job in jobs:
        assert database.run(read.result, job.id, "default").rows == b"vectors"


@pytest.mark.parametrize("stored", [True, False])
def test_the_row_tells_how_the_job_went(
    database: Database,
    stored_job: NewJob,
    new_job: NewJob,
    ending: Ending,
    row: Callable[[Submission], Job],
    stored: bool,
) -> None:
    job = stored_job() if stored else new_job(stored=False)
    started, finished = job.created + 1, job.created + 3

    database.run(
        finish.finish, [ending(job, State.FAILED, items_failed=1, started=started, finished=finished, device_ms=7.5)]
    )

    found = row(job)
    assert (found.state, found.items_failed, found.device_ms, found.worker) == (State.FAILED, 1, 7.5, "one")
    assert found.error == {"code": "model_failed", "message": "m", "retryable": False}
    assert (found.timings, found.usage) == ({"device_ms": 2.0}, {"tokens": 3})
    assert found.started_at is not None
    assert found.finished_at is not None
    assert found.expires_at is not None
    assert abs(found.started_at.timestamp() - started) < 1e-5
    assert abs(found.finished_at.timestamp() - finished) < 1e-5
    assert found.expires_at - found.finished_at == timedelta(seconds=job.retention_s)


@pytest.mark.parametrize("stored", [True, False])
def test_finishing_twice_keeps_what_came_first(
    database: Database,
    stored_job: NewJob,
    new_job: NewJob,
    ending: Ending,
    row: Callable[[Submission], Job],
    stored: bool,
) -> None:
    job = stored_job() if stored else new_job(stored=False)
    (first,) = database.run(finish.finish, [ending(job, result=b"first")])

    again = database.run(finish.finish, [ending(job, State.FAILED)])

    assert again == [finish.Ended(job.id, first.version, State.SUCCEEDED, applied=False)]
    assert database.run(read.result, job.id, "default").rows == b"first"


def test_one_job_twice_in_a_batch_is_written_once(database: Database, stored_job: NewJob, ending: Ending) -> None:
    job = stored_job()

    ended = database.run(finish.finish, [ending(job, result=b"a"), ending(job, result=b"b")])

    assert [outcome.applied for outcome in ended] == [True, False]
    assert database.run(read.result, job.id, "default").rows == b"a"


def test_of_two_deliveries_in_a_batch_the_newer_one_is_written(
    database: Database, stored_job: NewJob, ending: Ending
) -> None:
    old = stored_job()
    (claimed,) = database.run(claim.claim, [(old, claim.Lost.UNKNOWN)], "two", LIMITS)
    assert claimed.job is not None

    ended = database.run(finish.finish, [ending(old, result=b"old"), ending(claimed.job, result=b"new")])

    assert [outcome.applied for outcome in ended] == [False, True]
    assert database.run(read.result, old.id, "default").rows == b"new"


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("state", [State.SUCCEEDED, State.QUEUED])
def test_repeating_a_commit_that_was_in_doubt_answers_as_the_first_did(
    database: Database, stored_job: NewJob, new_job: NewJob, ending: Ending, stored: bool, state: State
) -> None:
    job = stored_job() if stored else new_job(stored=False)
    completion = ending(job, state, run_at=job.created + 5)

    first = database.run(finish.finish, [completion])

    assert first[0].applied
    assert database.run(finish.finish, [completion]) == first


def test_an_old_worker_that_commits_late_changes_nothing(
    database: Database, stored_job: NewJob, ending: Ending, row: Callable[[Submission], Job]
) -> None:
    old = stored_job()
    (claimed,) = database.run(claim.claim, [(old, claim.Lost.UNKNOWN)], "two", LIMITS)
    assert claimed.job is not None

    late = database.run(finish.finish, [ending(old, result=b"late")])
    assert late == [finish.Ended(old.id, 1, State.QUEUED, applied=False)]

    (ours,) = database.run(finish.finish, [ending(claimed.job, result=b"ours")])
    assert ours.applied
    assert database.run(finish.finish, [ending(old, result=b"late")])[0].applied is False
    assert database.run(read.result, old.id, "default").rows == b"ours"


def test_a_direct_job_that_got_its_row_meanwhile_is_finished_in_it(
    database: Database, stored_job: NewJob, ending: Ending, row: Callable[[Submission], Job]
) -> None:
    kept = stored_job()

    (ended,) = database.run(finish.finish, [ending(replace(kept, stored=False))])

    assert (ended.applied, ended.version) == (True, 2)
    assert row(kept).state is State.SUCCEEDED


def test_a_direct_job_whose_row_was_claimed_by_another_is_refused(
    database: Database, stored_job: NewJob, ending: Ending, row: Callable[[Submission], Job]
) -> None:
    kept = stored_job()
    database.run(claim.claim, [(kept, claim.Lost.UNKNOWN)], "two", LIMITS)

    (ended,) = database.run(finish.finish, [ending(replace(kept, stored=False))])

    assert not ended.applied
    assert row(kept).state is State.QUEUED


def test_a_stored_job_without_a_row_is_said_to_be_gone(database: Database, new_job: NewJob, ending: Ending) -> None:
    job = new_job()

    assert database.run(finish.finish, [ending(job)]) == [finish.Ended(job.id, 0, None, applied=False)]


@pytest.mark.parametrize("stored", [True, False])
def test_a_retryable_failure_requeues_the_job_for_its_next_attempt(
    database: Database,
    stored_job: NewJob,
    new_job: NewJob,
    ending: Ending,
    row: Callable[[Submission], Job],
    stored: bool,
) -> None:
    job = stored_job() if stored else new_job(stored=False)

    (ended,) = database.run(finish.finish, [ending(job, State.QUEUED, run_at=job.created + 60)])

    assert (ended.applied, ended.state) == (True, State.QUEUED)
    found = row(job)
    assert (found.state, found.attempt, found.fence) == (State.QUEUED, 2, 2)
    assert (found.started_at, found.finished_at, found.expires_at) == (None, None, None)
    assert found.error is not None
    (message,) = database.run(read.submissions, [job.id])
    assert (message.attempt, message.fence) == (2, 2)


@pytest.mark.parametrize("stored", [True, False])
def test_a_requeue_by_an_old_worker_changes_nothing(
    database: Database, stored_job: NewJob, ending: Ending, row: Callable[[Submission], Job], stored: bool
) -> None:
    job = stored_job()
    database.run(claim.claim, [(job, claim.Lost.UNKNOWN)], "two", LIMITS)

    (ended,) = database.run(finish.finish, [ending(replace(job, stored=stored), State.QUEUED, run_at=job.created)])

    assert not ended.applied
    assert (row(job).attempt, row(job).fence) == (1, 2)


def test_time_spent_on_the_device_adds_up_over_attempts(
    database: Database, stored_job: NewJob, ending: Ending, row: Callable[[Submission], Job]
) -> None:
    job = stored_job()
    database.run(finish.finish, [ending(job, State.QUEUED, run_at=job.created, device_ms=3.0)])
    (message,) = database.run(read.submissions, [job.id])

    database.run(finish.finish, [ending(message, device_ms=4.0)])

    assert row(job).device_ms == 7.0


def test_a_cancelled_job_takes_no_result(
    database: Database, stored_job: NewJob, ending: Ending, row: Callable[[Submission], Job]
) -> None:
    job = stored_job()
    database.run(change.cancel, job.id, "default")

    assert database.run(finish.finish, [ending(job)]) == [finish.Ended(job.id, 2, State.CANCELLED, applied=False)]
    assert database.run(read.result, job.id, "default").rows is None


def test_of_a_cancel_and_a_finish_at_once_exactly_one_wins(
    database: Database, stored_job: NewJob, ending: Ending, row: Callable[[Submission], Job]
) -> None:
    for _ in range(25):
        job = stored_job()
        together = Barrier(2)

        def cancel(id_: UUID = job.id, together: Barrier = together) -> bool:
            together.wait()
            return database.run(change.cancel, id_, "default").changed

        def end(job: Submission = job, together: Barrier = together) -> bool:
            together.wait()
            return database.run(finish.finish, [ending(job)])[0].applied

        with ThreadPoolExecutor(2) as pool:
            cancelled, finished = pool.submit(cancel), pool.submit(end)
            outcome = (cancelled.result(), finished.result())

        assert outcome in {(True, False), (False, True)}
        assert row(job).state is (State.CANCELLED if outcome[0] else State.SUCCEEDED)


def test_marking_and_finishing_the_same_jobs_at_once_never_blocks_both(
    database_url: str, new_job: NewJob, ending: Ending
) -> None:
    database = Database(database_url, 2, patience_s=0.0)  # a deadlock is not hidden by another try
    lease = datetime.now(UTC) + timedelta(seconds=20)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            stored = [new_job(caller=f"caller {n % 3}") for n in range(10)]
            direct = [new_job(caller=f"caller {n % 3}", stored=False) for n in range(10)]
            database.run(accept.insert, stored)
            together = Barrier(2)

            def mark(
                together: Barrier = together, stored: list[Submission] = stored, direct: list[Submission] = direct
            ) -> None:
                together.wait()
                database.run(claim.start, [(job.id, 1) for job in stored], "one", lease, direct)

            def end(together: Barrier = together, jobs: tuple[Submission, ...] = (*stored, *direct)) -> list[bool]:
                together.wait()
                return [ended.applied for ended in database.run(finish.finish, [ending(job) for job in jobs[::-1]])]

            marking, finishing = pool.submit(mark), pool.submit(end)
            marking.result()
            assert finishing.result() == [True] * 20
    database.close()


def test_text_from_a_model_that_postgres_refuses_does_not_lose_the_result(
    database: Database, stored_job: NewJob, ending: Ending, row: Callable[[Submission], Job]
) -> None:
    job = stored_job()
    error = {"code": "model_failed", "message": "bad \0 and \ud800 and \\u0000", "retryable": False}

    (ended,) = database.run(
        finish.finish, [ending(job, State.FAILED, error=error, result=b"a\0b", timings={"device_ms": float("nan")})]
    )

    assert ended.applied
    assert row(job).error == {**error, "message": "bad � and � and \\u0000"}
    timings: object = row(job).timings
    assert timings == {"device_ms": None}
    assert database.run(read.result, job.id, "default").rows == b"a\0b"


@pytest.mark.parametrize("state", list(State))
def test_only_the_states_of_the_table_take_a_result(
    database: Database,
    stored_job: NewJob,
    ending: Ending,
    set_columns: Callable[..., None],
    row: Callable[[Submission], Job],
    state: State,
) -> None:
    job = stored_job()
    set_columns(job, state=f"'{state.value}'")

    (ended,) = database.run(finish.finish, [ending(job)])

    assert ended.applied == (move(state, Event.SUCCEED) is not None)
    assert row(job).state is (move(state, Event.SUCCEED) or state)
