"""A real child with jobs whose inputs and results are in the blob store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.blobs import Blobs
from tasks.contents import FOLDER, Contents, new_key
from tasks.db import Database
from tasks.jobs import Job, State
from tasks.messages import Submission
from tasks.results import unpack_rows
from tasks.store import change, read

NewJob = Callable[..., Submission]
Row = Callable[[Submission], Job]
Texts = Callable[..., bytes]
StartChild = Callable[..., Any]

MOST = 16 * 1024


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    return Contents(Blobs(str(tmp_path / "blobs")), MOST)


@pytest.fixture
def child(start_child: StartChild, tmp_path: Path) -> Any:
    return start_child(blobs=tmp_path / "blobs", blob_bytes=MOST)


def test_large_inputs_come_from_the_store_and_a_large_result_goes_there(
    child: Any, contents: Contents, database: Database, stored_job: NewJob, new_job: NewJob, texts: Texts
) -> None:
    words = [f"a text {number}" for number in range(40)]
    given: dict[str, Any] = {"lengths": [3] * 40, "costs": [0.1] * 40, "inputs": b""}
    key = contents.put(new_job().id, texts(*words))
    first = stored_job(**given, inputs_blob=key)
    again = stored_job(**given, inputs_blob=key, checked=True)
    child.run(first, again)
    assert child.done(2) == {str(first.id): "succeeded", str(again.id): "succeeded"}
    found = [database.run(read.result, job.id, "default") for job in (first, again)]
    assert [one.rows for one in found] == [None, None]
    results = [unpack_rows(contents.get(one.blob or "")) for one in found]
    assert results[0] == results[1]
    assert [row["dense"]["dims"] for row in results[0]] == [384] * 40


def test_a_job_whose_blob_is_gone_fails_once_and_is_not_tried_again(
    child: Any, stored_job: NewJob, new_job: NewJob, row: Row
) -> None:
    job = stored_job(inputs=b"", inputs_blob=new_key(new_job().id))
    child.run(job)
    assert child.done(1) == {str(job.id): "failed"}
    told = row(job)
    assert (told.state, told.attempt, told.items_failed) == (State.FAILED, 1, 1)
    assert told.error is not None
    assert (told.error["code"], told.error["retryable"]) == ("blob_missing", False)


def test_the_result_of_an_old_attempt_leaves_no_blob(
    child: Any, contents: Contents, database: Database, stored_job: NewJob, texts: Texts, tmp_path: Path
) -> None:
    job = stored_job(inputs=texts(*["x"] * 40), lengths=[3] * 40, costs=[0.1] * 40)
    database.run(change.cancel, job.id, "default")
    database.run(change.retry, job.id, "default", read_now(database))
    child.run(job)
    assert child.done(1) == {str(job.id): "dropped"}
    child.send("stop")
    assert child.ended()
    assert Blobs(str(tmp_path / "blobs")).keys(FOLDER) == []


def read_now(database: Database) -> Any:
    return database.run(lambda conn: conn.exec_driver_sql("SELECT now()").scalar_one())
