"""Taking jobs that another worker may have held, and keeping them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest

from tasks.db import Database
from tasks.jobs import Event, Job, State, move
from tasks.messages import Completion, Submission
from tasks.store import change, claim, finish, sweep
from tasks.store.claim import Lost, Verdict

NewJob = Callable[..., Submission]
Row = Callable[[Submission], Job]
LIMITS = claim.Limits(max_attempts=3, max_deliveries=20)


def ahead(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def take(database: Database, job: Submission, lost: Lost, limits: claim.Limits = LIMITS) -> claim.Claimed:
    (claimed,) = database.run(claim.claim, [(job, lost)], "two", limits)
    return claimed


def run(database: Database, job: Submission, lease_s: float, worker: str = "one") -> None:
    assert job.id in database.run(claim.start, [(job.id, job.fence)], worker, ahead(lease_s))


def test_a_claim_raises_the_fence_and_brings_the_inputs(database: Database, stored_job: NewJob) -> None:
    job = stored_job(inputs=b"x" * 9000)
    message = Submission(**{name: getattr(job, name) for name in Submission.__dataclass_fields__} | {"inputs": b""})

    claimed = take(database, message, Lost.UNKNOWN)

    assert claimed.verdict is Verdict.RUN
    assert claimed.job is not None
    assert (claimed.job.fence, claimed.job.attempt, claimed.job.inputs) == (2, 1, b"x" * 9000)


@pytest.mark.parametrize(("lost", "attempt"), [(Lost.NO, 1), (Lost.UNKNOWN, 1), (Lost.RUNNING, 2), (Lost.TIMED_OUT, 2)])
def test_an_attempt_is_counted_when_the_message_says_it_ran(
    database: Database, stored_job: NewJob, row: Row, lost: Lost, attempt: int
) -> None:
    job = stored_job()

    claimed = take(database, job, lost)

    assert claimed.job is not None
    assert claimed.job.attempt == attempt == row(job).attempt


def test_an_attempt_is_counted_when_the_row_says_it_ran(database: Database, stored_job: NewJob, row: Row) -> None:
    job = stored_job()
    run(database, job, lease_s=60)

    claimed = take(database, job, Lost.UNKNOWN)

    assert claimed.job is not None
    assert claimed.job.attempt == 2
    assert (row(job).state, row(job).started_at) == (State.QUEUED, None)


def test_a_lost_run_is_counted_once_however_it_is_told(
    database: Database, stored_job: NewJob, row: Row, set_columns: Callable[..., None]
) -> None:
    job = stored_job()
    set_columns(job, lease_until="now() - interval '1 second'")  # as the sweeper leaves a job that it took back

    assert take(database, job, Lost.RUNNING).job is not None
    assert row(job).attempt == 2
    assert take(database, job, Lost.UNKNOWN).job is not None
    assert row(job).attempt == 2


def test_a_second_message_leaves_a_living_workers_job_alone(database: Database, stored_job: NewJob, row: Row) -> None:
    job = stored_job()
    run(database, job, lease_s=60)

    claimed = take(database, job, Lost.NO)

    assert (claimed.verdict, claimed.job, claimed.state) == (Verdict.BUSY, None, State.RUNNING)
    assert (row(job).fence, row(job).attempt) == (1, 1)


def test_a_second_message_takes_a_job_whose_lease_is_over(database: Database, stored_job: NewJob) -> None:
    job = stored_job()
    run(database, job, lease_s=-1)

    claimed = take(database, job, Lost.NO)

    assert claimed.job is not None
    assert claimed.job.attempt == 2


def test_a_job_that_was_idle_when_its_worker_died_has_spent_nothing(
    database: Database, stored_job: NewJob, row: Row
) -> None:
    job = stored_job()
    run(database, job, lease_s=60)

    claimed = take(database, job, Lost.IDLE)

    assert claimed.verdict is Verdict.RUN
    assert (row(job).fence, row(job).attempt, row(job).state) == (2, 1, State.QUEUED)


@pytest.mark.parametrize(("lost", "code"), [(Lost.RUNNING, "worker_lost"), (Lost.TIMED_OUT, "time_limit")])
def test_a_job_out_of_attempts_is_given_up_with_the_reason(
    database: Database, stored_job: NewJob, row: Row, lost: Lost, code: str
) -> None:
    job = stored_job()
    for _ in range(LIMITS.max_attempts - 1):
        assert take(database, job, Lost.RUNNING).verdict is Verdict.RUN

    claimed = take(database, job, lost)

    assert (claimed.verdict, claimed.job, claimed.state) == (Verdict.GIVEN_UP, None, State.FAILED)
    assert claimed.error is not None
    assert claimed.error["code"] == code
    found = row(job)
    assert (found.state, found.version, found.attempt) == (State.FAILED, claimed.version, LIMITS.max_attempts)
    assert found.expires_at is not None
    assert take(database, job, Lost.UNKNOWN).verdict is Verdict.ENDED


def test_a_job_delivered_too_often_is_given_up(database: Database, stored_job: NewJob) -> None:
    job = stored_job()
    limits = claim.Limits(max_attempts=100, max_deliveries=3)

    verdicts = [take(database, job, Lost.UNKNOWN, limits).verdict for _ in range(4)]

    assert verdicts == [Verdict.RUN, Verdict.RUN, Verdict.GIVEN_UP, Verdict.ENDED]


def test_deliveries_are_counted_anew_after_a_retry(database: Database, stored_job: NewJob, row: Row) -> None:
    job = stored_job()
    limits = claim.Limits(max_attempts=100, max_deliveries=3)
    for _ in range(3):
        take(database, job, Lost.UNKNOWN, limits)
    for _ in range(3):
        database.run(change.cancel, job.id, "default")
        database.run(change.retry, job.id, "default", ahead(0))
        assert take(database, job, Lost.NO, limits).verdict is Verdict.RUN

    verdicts = [take(database, job, Lost.UNKNOWN, limits).verdict for _ in range(2)]

    assert verdicts == [Verdict.RUN, Verdict.GIVEN_UP]


def test_an_old_message_of_a_retried_job_takes_it_with_the_retrys_deadline(
    database: Database, stored_job: NewJob, row: Row
) -> None:
    past = ahead(-60).timestamp()
    old = stored_job(created=past - 30, deadline=past)
    database.run(change.cancel, old.id, "default")
    database.run(change.retry, old.id, "default", ahead(0))

    claimed = take(database, old, Lost.UNKNOWN)

    assert claimed.job is not None
    assert claimed.job.deadline is not None
    assert row(old).deadline_at == datetime.fromtimestamp(claimed.job.deadline, UTC)
    assert claimed.job.deadline > claimed.job.created > past


def test_what_cannot_be_taken_says_why(
    database: Database, stored_job: NewJob, new_job: NewJob, ending: Callable[..., Completion]
) -> None:
    done, cancelled, gone, free = stored_job(), stored_job(), new_job(), stored_job()
    database.run(finish.finish, [ending(done)])
    database.run(change.cancel, cancelled.id, "default")

    claimed = database.run(claim.claim, [(job, Lost.UNKNOWN) for job in (done, cancelled, gone, free)], "two", LIMITS)

    assert [(c.id, c.verdict, c.state) for c in claimed] == [
        (done.id, Verdict.ENDED, State.SUCCEEDED),
        (cancelled.id, Verdict.ENDED, State.CANCELLED),
        (gone.id, Verdict.UNKNOWN, None),
        (free.id, Verdict.RUN, State.QUEUED),
    ]


def test_a_direct_job_that_was_lost_gets_its_row(database: Database, new_job: NewJob, row: Row) -> None:
    job = new_job(stored=False, tags=("t",))

    claimed = take(database, job, Lost.RUNNING)

    assert claimed.job is not None
    assert (claimed.job.stored, claimed.job.fence, claimed.job.attempt) == (True, 2, 2)
    assert row(job).tags == ("t",)


def test_one_job_twice_in_a_call_is_taken_once(database: Database, stored_job: NewJob, row: Row) -> None:
    job = stored_job()

    claimed = database.run(claim.claim, [(job, Lost.UNKNOWN), (job, Lost.RUNNING)], "two", LIMITS)

    assert sorted(c.verdict for c in claimed) == [Verdict.BUSY, Verdict.RUN]
    assert (row(job).fence, row(job).attempt) == (2, 2)


def test_of_simultaneous_claims_only_the_last_can_commit(
    database: Database, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    job = stored_job()
    together = Barrier(4)

    def contend(_: int) -> Submission | None:
        together.wait()
        return take(database, job, Lost.UNKNOWN).job

    with ThreadPoolExecutor(4) as pool:
        ours = [taken for taken in pool.map(contend, range(4)) if taken is not None]

    assert sorted(taken.fence for taken in ours) == [2, 3, 4, 5]
    applied = [database.run(finish.finish, [ending(taken)])[0].applied for taken in ours]
    assert [taken.fence for taken, done in zip(ours, applied, strict=True) if done] == [5]


def test_a_started_job_is_running_under_a_lease(database: Database, stored_job: NewJob, row: Row) -> None:
    job = stored_job()

    assert database.run(claim.start, [(job.id, job.fence)], "one", ahead(20)) == {job.id: 2}

    found = row(job)
    assert (found.state, found.worker, found.version) == (State.RUNNING, "one", 2)
    assert found.started_at is not None


def test_a_direct_job_that_starts_gets_its_row(database: Database, new_job: NewJob, row: Row) -> None:
    job = new_job(stored=False)

    ours = database.run(claim.start, [], "one", ahead(20), [job])

    assert list(ours) == [job.id]
    assert row(job).state is State.RUNNING


@pytest.mark.parametrize("state", list(State))
def test_only_the_states_of_the_table_can_start(
    database: Database, stored_job: NewJob, set_columns: Callable[..., None], row: Row, state: State
) -> None:
    job = stored_job()
    set_columns(job, state=f"'{state.value}'")

    ours = database.run(claim.start, [(job.id, 1)], "one", ahead(20))

    assert (job.id in ours) == (move(state, Event.START) is not None)
    assert row(job).state is (move(state, Event.START) or state)


def test_a_job_taken_by_a_newer_worker_does_not_start(database: Database, stored_job: NewJob, row: Row) -> None:
    job = stored_job()
    take(database, job, Lost.UNKNOWN)

    assert database.run(claim.start, [(job.id, 1)], "one", ahead(20)) == {}
    assert row(job).state is State.QUEUED


def test_a_beat_names_the_jobs_that_are_still_ours(database: Database, stored_job: NewJob) -> None:
    kept, cancelled, taken = stored_job(), stored_job(), stored_job()
    for job in (kept, cancelled, taken):
        run(database, job, lease_s=1)
    database.run(change.cancel, cancelled.id, "default")
    take(database, taken, Lost.UNKNOWN)

    ours = database.run(claim.beat, "one", [(job.id, 1) for job in (kept, cancelled, taken)], ahead(60))

    assert ours == {kept.id}
    assert take(database, kept, Lost.NO).verdict is Verdict.BUSY  # the lease was renewed


def test_a_job_whose_lease_was_over_before_its_worker_was_heard_again_runs_on_and_counts_no_loss(
    database: Database, stored_job: NewJob, ending: Callable[..., Completion], row: Row
) -> None:
    job = stored_job()
    run(database, job, lease_s=-1)
    database.run(sweep.reclaim, ahead(0), 10, 3)

    assert database.run(claim.beat, "one", [(job.id, 1)], ahead(60)) == {job.id}

    assert (row(job).state, row(job).attempt) == (State.RUNNING, 1)
    assert take(database, job, Lost.NO).verdict is Verdict.BUSY
    assert database.run(finish.finish, [ending(job)])[0].applied


def test_a_beat_for_nothing_asks_nothing(database: Database) -> None:
    assert database.run(claim.beat, "one", [], ahead(60)) == set()
