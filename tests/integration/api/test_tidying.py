"""What the feeder removes: files and batches whose time is over, and blobs that belong to nothing."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api.feeding.services import Feeding, feeding
from api.feeding.tidying import ORPHAN_AGE, Tidying
from catalog.loader import Catalog
from catalog.terms import Lane, Verb
from tasks.batches import Status
from tasks.contents import FOLDER
from tasks.messages import Submission
from tasks.prepare import CALLER, job_id
from tasks.settings import Settings
from tasks.store import accept, change, files, spent
from tasks.store import batch_leases as leases
from tasks.store import batches as store
from tests.integration.api.given import batch_of, stored_file

LONG_AGO = datetime.now(UTC) - timedelta(days=60)
JOB = Submission(
    id=job_id(0.0),
    caller=CALLER,
    verb=Verb.ENCODE,
    model="org/model",
    revision=None,
    lane=Lane.BULK,
    bucket="xs",
    priority=5,
    options={},
    inputs=b"x" * 300_000,
    lengths=[3],
    costs=[1.5],
    faults={},
    created=0.0,
    deadline=None,
    retention_s=3600,
)
"""Its inputs are too large for a row."""


@pytest.fixture
async def it(database_url: str, broker_url: str, tmp_path: Path, catalog: Catalog) -> AsyncIterator[Feeding]:
    async with feeding(
        Settings(database_url=database_url, broker_url=broker_url, blobs=str(tmp_path)), catalog
    ) as made:
        yield made


def blob(it: Feeding, key: str, at: datetime) -> str:
    with it.blobs.writing(key) as out:
        out.write(b"x")
    os.utime(Path(it.settings.blobs_url) / key, (at.timestamp(), at.timestamp()))
    return key


def left(it: Feeding) -> set[str]:
    return {*it.blobs.keys("files"), *it.blobs.keys("batches")}


async def test_a_blob_that_cannot_be_removed_holds_no_other_up_and_goes_with_the_sweep(
    it: Feeding, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "abc":
        await stored_file(it, blob(it, f"files/{name}", LONG_AGO), size=1, expires_at=LONG_AGO)
    # A folder where the file was: it cannot be removed as a file.
    (tmp_path / "files" / "a").unlink()
    (tmp_path / "files" / "a").mkdir()
    tidying = Tidying(it)

    with caplog.at_level(logging.WARNING):
        await tidying.expire()

    assert left(it) == set()
    assert [record.getMessage().split(" ")[0] for record in caplog.records] == ["files/a"]
    (tmp_path / "files" / "a").rmdir()
    blob(it, "files/a", LONG_AGO)
    await tidying.sweep()
    assert left(it) == set()


async def test_what_a_killed_upload_left_is_swept_and_what_belongs_to_something_is_not(
    it: Feeding, tmp_path: Path
) -> None:
    file = await stored_file(it, blob(it, "files/kept", LONG_AGO), size=1)
    fresh = blob(it, "files/fresh", datetime.now(UTC) - ORPHAN_AGE / 2)
    blob(it, "files/lost", LONG_AGO)
    (tmp_path / blob(it, "files/x", LONG_AGO)).rename(tmp_path / "files/x.unfinished")
    running, over = await batch_of(it, b"x"), await batch_of(it, b"x")
    part = blob(it, f"{running.folder}/p", LONG_AGO)
    blob(it, f"{over.folder}/p", LONG_AGO)
    await it.database.run(leases.claim, "one", 30.0)
    await it.database.run(store.cancel, over.id, CALLER)
    await it.database.run(leases.claim, "two", 30.0)
    await it.database.run(leases.end, over.id, "two", Status.CANCELLED)
    inputs = {(await it.database.run(files.get, batch.input_file, CALLER)).blob for batch in (running, over)}

    await Tidying(it).sweep()

    assert left(it) == {file.blob, fresh, part, *inputs}


async def test_what_a_death_between_a_blob_and_its_row_left_is_swept_and_what_a_row_names_is_not(it: Feeding) -> None:
    """The inputs of a job are in the store before its row is committed: a process may die in between."""
    submissions = [replace(JOB, id=job_id(number)) for number in (1.0, 2.0, 3.0)]
    lost, named, fresh = [await it.contents.offloaded(job) for job in submissions]
    await it.database.run(accept.insert, [named])
    for job in (lost, named):
        path = Path(it.settings.blobs_url) / str(job.inputs_blob)
        os.utime(path, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))
    assert len(it.blobs.keys(FOLDER)) == 3

    await Tidying(it).sweep()

    assert set(it.blobs.keys(FOLDER)) == {named.inputs_blob, fresh.inputs_blob}


async def test_the_blobs_of_deleted_jobs_are_removed_and_tried_again_where_that_fails(
    it: Feeding, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [await it.contents.offloaded(replace(JOB, id=job_id(number))) for number in (1.0, 2.0)]
    await it.database.run(accept.insert, jobs)
    for job in jobs:
        await it.database.run(change.cancel, job.id, CALLER)
        await it.database.run(change.delete, job.id, CALLER)
    stuck = tmp_path / str(jobs[0].inputs_blob)
    stuck.unlink()
    stuck.mkdir()
    tidying = Tidying(it)

    with caplog.at_level(logging.WARNING):
        await tidying.spend()

    assert await it.database.run(spent.due, 10) == [jobs[0].inputs_blob]
    assert it.blobs.keys(FOLDER) == []
    assert len(caplog.records) == 1
    stuck.rmdir()
    await tidying.spend()
    assert await it.database.run(spent.due, 10) == []


async def test_a_batch_goes_with_the_longest_retention_and_not_before(it: Feeding) -> None:
    batch = await batch_of(it, b"x")
    await it.database.run(leases.claim, "one", 30.0)
    await it.database.run(leases.end, batch.id, "one", Status.FAILED)
    await Tidying(it).expire()
    assert (await it.database.run(store.get, batch.id, CALLER)).status is Status.FAILED

    age = timedelta(seconds=it.settings.max_retention_s)
    await it.database.run(
        lambda conn: conn.exec_driver_sql("UPDATE batches SET ended_at = now() - %(age)s", {"age": age}).close()
    )
    await Tidying(it).expire()

    assert await it.database.run(store.page, CALLER, after=None, limit=5) == []
