"""Rows for new jobs, and one job for each idempotency key."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from tasks.db import Database
from tasks.jobs import Job, State
from tasks.messages import Completion, Submission
from tasks.store import accept, claim, finish, read

NewJob = Callable[..., Submission]


def test_a_group_becomes_queued_rows(database: Database, new_job: NewJob, row: Callable[[Submission], Job]) -> None:
    jobs = [new_job(tags=("a", 'say "b" \\ {c}', ""), options={"normalize": True}), new_job(caller="bert")]

    accepted = database.run(accept.insert, jobs)

    assert accepted.existing == {}
    first, second = (row(job) for job in jobs)
    assert (first.state, first.attempt, first.fence, first.version) == (State.QUEUED, 1, 1, 1)
    assert first.tags == ("a", 'say "b" \\ {c}', "")
    assert first.options == {"normalize": True}
    assert second.caller == "bert"


def test_a_message_rebuilt_from_its_row_equals_the_submission(database: Database, new_job: NewJob) -> None:
    job = new_job(
        revision="r1", tags=("t",), idempotency_key="k", body_hash=b"h", deadline=1_900_000_000.25,
        lengths=[1, 2], costs=[0.5, 1.5], faults={1: {"code": "empty_text", "message": "m", "retryable": False}},
        options={"dims": 3},
    )  # fmt: skip
    database.run(accept.insert, [job])

    (rebuilt,) = database.run(read.submissions, [job.id])

    assert rebuilt.checked
    assert abs(rebuilt.created - job.created) < 1e-5
    differing = {"checked", "created"}
    for name in Submission.__dataclass_fields__:
        if name not in differing:
            assert getattr(rebuilt, name) == getattr(job, name), name


def test_inputs_too_large_for_a_message_stay_in_the_row(database: Database, new_job: NewJob) -> None:
    job = new_job(inputs=b"x" * 9000)
    database.run(accept.insert, [job])

    (rebuilt,) = database.run(read.submissions, [job.id])

    assert rebuilt.inputs == b""
    assert database.run(claim.rest, [job.id]) == {job.id: claim.Rest(b"x" * 9000, None, {})}


def test_repeating_a_call_adds_no_row_and_names_no_other_job(database: Database, new_job: NewJob) -> None:
    jobs = [new_job(), new_job(idempotency_key="k")]
    database.run(accept.insert, jobs)

    assert database.run(accept.insert, jobs).existing == {}
    assert len(database.run(read.jobs, [job.id for job in jobs])) == 2


def test_a_used_key_leads_to_its_job_and_that_jobs_body(database: Database, new_job: NewJob) -> None:
    first = new_job(idempotency_key="k", body_hash=b"one")
    database.run(accept.insert, [first])
    second = new_job(idempotency_key="k", body_hash=b"two")

    accepted = database.run(accept.insert, [second])

    assert accepted.existing == {second.id: accept.Existing(first.id, b"one")}
    assert database.run(read.jobs, [second.id]) == {}


def test_one_key_twice_in_a_call_makes_one_job(database: Database, new_job: NewJob) -> None:
    jobs = [new_job(idempotency_key="k"), new_job(idempotency_key="k"), new_job()]

    accepted = database.run(accept.insert, jobs)

    assert accepted.existing == {jobs[1].id: accept.Existing(jobs[0].id, None)}
    assert set(database.run(read.jobs, [job.id for job in jobs])) == {jobs[0].id, jobs[2].id}


def test_two_callers_may_use_one_key(database: Database, new_job: NewJob) -> None:
    jobs = [new_job(idempotency_key="k"), new_job(idempotency_key="k", caller="bert")]

    assert database.run(accept.insert, jobs).existing == {}


def test_twenty_simultaneous_calls_with_one_key_make_one_job(database_url: str, new_job: NewJob) -> None:
    jobs = [new_job(idempotency_key="k") for _ in range(20)]
    together = Barrier(20)
    database = Database(database_url, 20)

    def submit(job: Submission) -> accept.Accepted:
        together.wait()
        return database.run(accept.insert, [job])

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(submit, jobs))

    rows = database.run(read.jobs, [job.id for job in jobs])
    database.close()
    assert len(rows) == 1
    (winner,) = rows
    assert [answer.existing.get(job.id) for answer, job in zip(answers, jobs, strict=True) if job.id != winner] == (
        [accept.Existing(winner, None)] * 19
    )


def test_groups_with_the_same_keys_in_other_orders_do_not_block_each_other(database_url: str, new_job: NewJob) -> None:
    keys = [f"key {number}" for number in range(30)]
    groups = [[new_job(idempotency_key=key) for key in order] for order in (keys, keys[::-1]) for _ in range(4)]
    together = Barrier(len(groups))
    database = Database(database_url, len(groups), patience_s=0.0)  # a deadlock is not hidden by another try

    def submit(group: list[Submission]) -> int:
        together.wait()
        return len(group) - len(database.run(accept.insert, group).existing)

    with ThreadPoolExecutor(len(groups)) as pool:
        made = sum(pool.map(submit, groups))
    database.close()
    assert made == len(keys)


def test_the_key_of_a_failed_job_still_leads_to_it(
    database: Database, new_job: NewJob, ending: Callable[..., Completion]
) -> None:
    failed, again = new_job(idempotency_key="k"), new_job(idempotency_key="k")
    database.run(accept.insert, [failed])
    database.run(finish.finish, [ending(failed, State.FAILED)])

    assert database.run(accept.insert, [again]).existing[again.id].id == failed.id


def test_the_key_of_a_job_past_its_retention_is_free_again(
    database: Database, new_job: NewJob, ending: Callable[..., Completion]
) -> None:
    old, new = new_job(idempotency_key="k", retention_s=60), new_job(idempotency_key="k")
    database.run(accept.insert, [old])
    database.run(finish.finish, [ending(old, finished=old.created - 100)])

    assert database.run(accept.insert, [new]).existing == {}
    assert set(database.run(read.jobs, [old.id, new.id])) == {new.id}


def test_characters_that_postgres_refuses_become_replacement_characters(
    database: Database, new_job: NewJob, row: Callable[[Submission], Job]
) -> None:
    bad = new_job(
        tags=("a\0b",), options={"la\0bel": ["x\0", "\ud83d", float("nan"), 2**70]}, idempotency_key="k\0", model="m\0"
    )
    good = new_job()

    database.run(accept.insert, [bad, good])

    assert row(good).state is State.QUEUED
    assert row(bad).tags == ("a�b",)
    assert row(bad).options == {"la�bel": ["x�", "�", None, float(2**70)]}
    assert (row(bad).idempotency_key, row(bad).model) == ("k�", "m�")
