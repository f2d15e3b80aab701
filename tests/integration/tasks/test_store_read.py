"""Jobs, results and pages, as callers see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from catalog.terms import Lane, Verb
from tasks.db import Database
from tasks.errors import InvalidRequest, JobNotFound, NotFinished, ResultExpired
from tasks.jobs import State
from tasks.messages import Completion, Submission
from tasks.store import accept, finish, read
from tasks.store.pages import Filters

NewJob = Callable[..., Submission]
Ending = Callable[..., Completion]


def test_a_job_belongs_to_its_caller(database: Database, stored_job: NewJob) -> None:
    job = stored_job()

    found = database.run(read.job, job.id, "default")
    assert found is not None
    assert found.id == job.id
    assert database.run(read.job, job.id, "bert") is None
    assert set(database.run(read.jobs, [job.id], "default")) == {job.id}
    assert database.run(read.jobs, [job.id], "bert") == {}


def test_a_job_past_its_retention_is_gone(database: Database, stored_job: NewJob, ending: Ending) -> None:
    job = stored_job(retention_s=60)
    database.run(finish.finish, [ending(job, finished=job.created - 1000)])

    assert database.run(read.job, job.id, "default") is None
    assert database.run(read.jobs, [job.id]) == {}
    assert database.run(read.page, "default", Filters(), None, 10).jobs == ()
    with pytest.raises(ResultExpired):
        database.run(read.result, job.id, "default")


def test_a_result_can_be_read_as_often_as_one_likes(database: Database, stored_job: NewJob, ending: Ending) -> None:
    job = stored_job()
    database.run(finish.finish, [ending(job, result=b"\0vectors")])

    assert database.run(read.result, job.id, "default").rows == b"\0vectors"
    again = database.run(read.result, job.id, "default")
    assert (again.rows, again.job.state) == (b"\0vectors", State.SUCCEEDED)


def test_a_result_that_is_not_there_says_why(database: Database, stored_job: NewJob, new_job: NewJob) -> None:
    with pytest.raises(NotFinished):
        database.run(read.result, stored_job().id, "default")
    with pytest.raises(JobNotFound):
        database.run(read.result, new_job().id, "default")
    with pytest.raises(JobNotFound):
        database.run(read.result, stored_job().id, "bert")


def test_pages_go_from_the_newest_job_to_the_oldest_without_a_gap(database: Database, new_job: NewJob) -> None:
    jobs = [new_job() for _ in range(7)]
    database.run(accept.insert, [*jobs, new_job(caller="bert")])

    seen: list[UUID] = []
    cursor = None
    sizes = []
    for _ in range(4):
        page = database.run(read.page, "default", Filters(), cursor, 3)
        seen += [job.id for job in page.jobs]
        sizes.append(len(page.jobs))
        cursor = page.next_cursor
        if cursor is None:
            break
        database.run(accept.insert, [new_job()])  # what comes meanwhile disturbs no page

    assert seen == [job.id for job in reversed(jobs)]
    assert sizes == [3, 3, 1]


def test_a_full_last_page_has_no_next(database: Database, new_job: NewJob) -> None:
    database.run(accept.insert, [new_job(), new_job()])

    assert database.run(read.page, "default", Filters(), None, 2).next_cursor is None


def test_a_list_holds_the_jobs_that_match_every_filter(database: Database, new_job: NewJob, ending: Ending) -> None:
    plain = new_job()
    other = new_job(model="roost/other", lane=Lane.BULK, verb=Verb.SCORE, tags=("red", "green"))
    both = new_job(model="roost/other", tags=("red",))
    database.run(accept.insert, [plain, other, both])
    database.run(finish.finish, [ending(other)])

    def listed(**filters: Any) -> list[UUID]:
        return [job.id for job in database.run(read.page, "default", Filters(**filters), None, 10).jobs]

    assert listed(status=State.QUEUED) == [both.id, plain.id]
    assert listed(status=State.SUCCEEDED) == [other.id]
    assert listed(status=State.RUNNING) == []
    assert listed(verb=Verb.SCORE) == [other.id]
    assert listed(lane=Lane.BULK) == [other.id]
    assert listed(model="roost/other") == [both.id, other.id]
    assert listed(tag="red") == [both.id, other.id]
    assert listed(tag="re") == []
    assert listed(tag="red", status=State.QUEUED, model="roost/other") == [both.id]
    assert listed(tag="nul\0") == []


def test_a_filter_that_matches_little_makes_pages_short_and_not_slow(
    database: Database, new_job: NewJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "SCAN_ROWS", 4)
    jobs = [new_job(lane=Lane.BULK if number in {0, 5} else Lane.INTERACTIVE) for number in range(12)]
    database.run(accept.insert, jobs)

    pages = []
    cursor = None
    for _ in range(4):
        page = database.run(read.page, "default", Filters(lane=Lane.BULK), cursor, 3)
        pages.append([job.id for job in page.jobs])
        cursor = page.next_cursor
        if cursor is None:
            break

    assert pages == [[], [jobs[5].id], [jobs[0].id]]


def test_a_bad_cursor_is_a_bad_request(database: Database) -> None:
    with pytest.raises(InvalidRequest):
        database.run(read.page, "default", Filters(), "no cursor", 2)
