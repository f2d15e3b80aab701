"""Batches, their parts and leases, and the files that they read and write."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from tasks.batches import Batch, BatchNotFound, Part, Status, Tally, line_job
from tasks.db import Database
from tasks.files import FileInUse, FileNotFound, StoredFile
from tasks.jobs import State
from tasks.lines import Fault
from tasks.messages import Completion, Submission
from tasks.prepare import job_id
from tasks.store import batch_leases as leases
from tasks.store import batch_parts as parts
from tasks.store import batches as store
from tasks.store import files, finish, read
from tasks.store.leases import LeaseLost

LEASE_S = 30.0
DAY = timedelta(days=1)


def new_file(**fields: Any) -> StoredFile:
    now = datetime.now(UTC)
    values: dict[str, Any] = {
        "id": job_id(now.timestamp()),
        "caller": "default",
        "filename": "in.jsonl",
        "purpose": "batch",
        "bytes": 10,
        "blob": "files/x",
        "created_at": now,
        "expires_at": now + DAY,
    }
    return StoredFile(**values | fields)


@pytest.fixture
def file(database: Database) -> StoredFile:
    made = new_file()
    database.run(files.put, made)
    return made


@pytest.fixture
def new_batch(database: Database, file: StoredFile) -> Callable[..., Batch]:
    def make(**fields: Any) -> Batch:
        now = datetime.now(UTC)
        values: dict[str, Any] = {
            "id": job_id(now.timestamp()),
            "caller": "default",
            "endpoint": "/v1/embeddings",
            "completion_window": "24h",
            "input_file": file.id,
            "labels": {"a": "b"},
            "output_expires_s": 3600,
            "folder": "batches/x",
            "created_at": now,
            "expires_at": now + DAY,
        }
        return database.run(store.create, store.NewBatch(**values | fields))

    return make


PARTS = [Part(0, 1, 3, 0, 30), Part(1, 4, 2, 30, 20), Part(2, 6, 2, 50, 20)]


@pytest.fixture
def begun(database: Database, new_batch: Callable[..., Batch]) -> Batch:
    """A batch of three parts that the feeder `one` works on."""
    new_batch()
    taken = database.run(leases.claim, "one", LEASE_S)
    assert taken is not None
    return database.run(leases.begin, taken.id, "one", PARTS, "m")


def test_a_batch_is_kept_as_it_was_asked_for(database: Database, new_batch: Callable[..., Batch]) -> None:
    batch = new_batch()

    assert (batch.status, batch.labels, batch.total) == (Status.VALIDATING, {"a": "b"}, 0)
    assert database.run(store.get, batch.id, "default") == batch
    for id_, caller in ((batch.id, "bob"), (job_id(1.0), "default"), (None, "default")):
        with pytest.raises(BatchNotFound):
            database.run(store.get, id_, caller)


def test_a_batch_of_a_file_that_is_gone_is_refused(database: Database, new_batch: Callable[..., Batch]) -> None:
    with pytest.raises(FileNotFound):
        new_batch(input_file=job_id(1.0))
    with pytest.raises(FileNotFound):
        new_batch(caller="bob")


def test_batches_are_taken_once_the_oldest_first_and_cancelled_ones_before(
    database: Database, new_batch: Callable[..., Batch]
) -> None:
    made = [new_batch(id=job_id(at)) for at in (1, 2, 3)]
    database.run(store.cancel, made[2].id, "default")

    taken = [database.run(leases.claim, f"f{n}", LEASE_S) for n in range(4)]

    assert [batch and batch.id for batch in taken] == [made[2].id, made[0].id, made[1].id, None]


def test_only_cancelled_ones_are_urgent(database: Database, new_batch: Callable[..., Batch]) -> None:
    batch = new_batch()
    assert database.run(leases.claim, "one", LEASE_S, urgent=True) is None
    database.run(store.cancel, batch.id, "default")
    assert database.run(leases.claim, "one", LEASE_S, urgent=True) is not None


def test_a_lease_that_ran_out_or_was_released_is_anothers(database: Database, begun: Batch) -> None:
    assert database.run(leases.claim, "two", LEASE_S) is None
    database.run(leases.release, "one")
    assert database.run(leases.claim, "two", 0.0) is not None
    three = database.run(leases.claim, "three", LEASE_S)

    assert three is not None
    for call in (
        lambda: database.run(leases.tend, begun.id, "two", LEASE_S, 0, 0),
        lambda: database.run(leases.begin, begun.id, "two", PARTS, None),
        lambda: database.run(leases.fed, begun.id, "two", 1),
        lambda: database.run(parts.finish_part, begun.id, "two", parts.DonePart(0, Tally(3), "o", None), []),
        lambda: database.run(leases.finalize, begun.id, "two"),
        lambda: database.run(leases.end, begun.id, "two", Status.COMPLETED),
    ):
        with pytest.raises(LeaseLost):
            call()
    assert len(database.run(parts.open_parts, begun.id, -1, 10)) == 3


def test_a_part_is_done_once_and_its_jobs_are_freed(
    database: Database, begun: Batch, new_job: Callable[..., Submission], stored_job: Callable[..., Submission]
) -> None:
    jobs = [stored_job(id=line_job(begun.id, line)) for line in (1, 2, 3)]
    other = stored_job(id=line_job(begun.id, 4))
    done = parts.DonePart(0, Tally(2, 1, 20, 5), "out", "err")

    for _ in range(2):
        database.run(parts.finish_part, begun.id, "one", done, [job.id for job in jobs])

    assert set(database.run(read.jobs, [*(job.id for job in jobs), other.id])) == {other.id}
    assert database.run(parts.tally, begun.id) == Tally(2, 1)
    after = database.run(store.get, begun.id, "default")
    assert (after.input_tokens, after.output_tokens) == (20, 5)
    assert [part.part for part in database.run(parts.open_parts, begun.id, -1, 10)] == [1, 2]
    with pytest.raises(LeaseLost):
        database.run(parts.finish_part, begun.id, "one", replace(done, output="another"), [])


def test_the_rest_is_done_with_its_first_part(database: Database, begun: Batch) -> None:
    database.run(parts.finish_part, begun.id, "one", parts.DonePart(0, Tally(3), "a", None), [])
    done = parts.DonePart(1, Tally(failed=2), None, "rest")
    database.run(parts.finish_part, begun.id, "one", done, [], rest=True)

    assert database.run(parts.open_parts, begun.id, -1, 10) == []
    assert database.run(parts.tally, begun.id) == Tally(3, 4)
    assert database.run(parts.part_blobs, begun.id) == [("a", None), (None, "rest")]


def test_a_batch_ends_with_its_files_once(database: Database, begun: Batch) -> None:
    for part in PARTS:
        done = parts.DonePart(part.part, Tally(part.lines), "o", None)
        database.run(parts.finish_part, begun.id, "one", done, [])
    batch = database.run(leases.finalize, begun.id, "one")
    assert batch.status is Status.FINALIZING
    output = new_file(purpose="batch_output")

    for _ in range(2):
        database.run(leases.end, begun.id, "one", Status.COMPLETED, output=output)

    ended = database.run(store.get, begun.id, "default")
    assert (ended.status, ended.completed, ended.failed, ended.output_file) == (Status.COMPLETED, 7, 0, output.id)
    assert ended.progress_at == ended.ended_at
    assert database.run(files.get, output.id, "default") == output
    assert database.run(parts.part_blobs, begun.id) == []
    assert database.run(leases.claim, "two", LEASE_S) is None


@pytest.mark.parametrize("status", list(Status))
def test_what_is_validated_or_worked_on_can_be_cancelled(
    database: Database, new_batch: Callable[..., Batch], status: Status
) -> None:
    batch = new_batch()
    database.run(lambda conn: conn.exec_driver_sql("UPDATE batches SET status = %(s)s", {"s": status.value}).close())

    after = database.run(store.cancel, batch.id, "default").status

    open_ = status in {Status.VALIDATING, Status.IN_PROGRESS}
    assert after is (Status.CANCELLING if open_ else status)


def test_a_cancel_is_heard_by_who_works_on_it(database: Database, begun: Batch) -> None:
    assert database.run(leases.tend, begun.id, "one", LEASE_S, 1, 2) is Status.IN_PROGRESS
    database.run(store.cancel, begun.id, "default")

    assert database.run(leases.tend, begun.id, "one", LEASE_S, 1, 2) is Status.CANCELLING
    assert database.run(leases.finalize, begun.id, "one").status is Status.CANCELLING


def test_progress_is_when_counts_moved(database: Database, begun: Batch) -> None:
    database.run(leases.tend, begun.id, "one", LEASE_S, 0, 0)
    assert database.run(store.get, begun.id, "default").progress_at is None
    database.run(leases.tend, begun.id, "one", LEASE_S, 1, 0)
    moved = database.run(store.get, begun.id, "default").progress_at
    database.run(leases.tend, begun.id, "one", LEASE_S, 1, 0)

    assert moved is not None
    assert database.run(store.get, begun.id, "default").progress_at == moved
    database.run(parts.finish_part, begun.id, "one", parts.DonePart(0, Tally(1), "o", None), [])
    database.run(leases.end, begun.id, "one", Status.COMPLETED)
    assert database.run(store.get, begun.id, "default").progress_at == moved


def test_open_jobs_are_cancelled_and_ended_ones_left(
    database: Database, stored_job: Callable[..., Submission], ending: Callable[..., Completion]
) -> None:
    queued, done = stored_job(), stored_job()
    database.run(finish.finish, [ending(done)])

    assert database.run(parts.cancel_jobs, [queued.id, done.id]) == [queued.id]
    states = database.run(parts.job_states, [queued.id, done.id, job_id(1.0)])
    assert states == {queued.id: (State.CANCELLED, 0), done.id: (State.SUCCEEDED, len(b"vectors"))}
    assert database.run(parts.ended_jobs, [done.id])[done.id].rows == b"vectors"


def test_files_are_listed_page_by_page_in_both_orders(database: Database) -> None:
    purposes = ("batch", "batch_output", "batch", "batch")
    made = [new_file(id=job_id(at), purpose=purpose) for at, purpose in enumerate(purposes, 1)]
    for file in made:
        database.run(files.put, file)
    ids = [made[0].id, made[2].id, made[3].id]

    def page(**fields: Any) -> list[Any]:
        values = {"after": None, "limit": 2, "newest_first": True, "purpose": "batch"} | fields
        return [file.id for file in database.run(files.page, "default", **values)]

    assert page() == [ids[2], ids[1]]
    assert page(after=ids[1]) == [ids[0]]
    assert page(newest_first=False) == [ids[0], ids[1]]
    assert page(newest_first=False, after=ids[1]) == [ids[2]]
    assert len(page(purpose=None, limit=10)) == 4
    assert database.run(files.page, "bob", after=None, limit=9, newest_first=True, purpose=None) == []


def test_a_file_that_an_open_batch_reads_is_kept(database: Database, file: StoredFile, begun: Batch) -> None:
    with pytest.raises(FileInUse):
        database.run(files.delete, file.id, "default")
    assert database.run(files.expire, datetime.now(UTC) + 2 * DAY, 10) == []

    database.run(leases.end, begun.id, "one", Status.FAILED)

    assert database.run(files.delete, file.id, "default") == file.blob
    with pytest.raises(FileNotFound):
        database.run(files.delete, file.id, "default")


def test_a_file_of_which_a_batch_is_made_at_this_moment_is_kept(database: Database, file: StoredFile) -> None:
    def made_meanwhile(conn: Connection) -> Future[str]:
        now = datetime.now(UTC)
        new = store.NewBatch(
            id=job_id(now.timestamp()),
            caller="default",
            endpoint="/v1/embeddings",
            completion_window="24h",
            input_file=file.id,
            labels=None,
            output_expires_s=3600,
            folder="batches/x",
            created_at=now,
            expires_at=now + DAY,
        )
        store.create(conn, new)
        deleting = threads.submit(database.run, files.delete, file.id, "default")
        # The transaction is over once the other one waits for it.
        while not conn.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE NOT granted").scalar_one():
            assert not deleting.done()
        return deleting

    with ThreadPoolExecutor(1) as threads:
        deleting = database.run(made_meanwhile)
        with pytest.raises(FileInUse):
            deleting.result()
    assert database.run(files.get, file.id, "default") == file


def test_a_file_whose_time_is_over_is_gone_at_once_and_then_removed(database: Database) -> None:
    now = datetime.now(UTC)
    old, kept = new_file(expires_at=now - DAY, blob="old"), new_file(expires_at=None)
    for file in (old, kept):
        database.run(files.put, file)

    with pytest.raises(FileNotFound):
        database.run(files.get, old.id, "default")
    assert database.run(files.expire, now, 10) == ["old"]
    assert database.run(files.expire, now, 10) == []
    assert database.run(files.get, kept.id, "default") == kept


def test_which_blobs_belong_to_something(database: Database, file: StoredFile, begun: Batch) -> None:
    assert database.run(files.kept, ["files/none", file.blob]) == {file.blob}
    assert database.run(store.open_folders, ["batches/none", begun.folder]) == {begun.folder}

    database.run(leases.end, begun.id, "one", Status.FAILED)

    assert database.run(store.open_folders, [begun.folder]) == set()


def test_the_model_of_a_batch_is_kept_whatever_its_name_holds(database: Database, begun: Batch) -> None:
    assert database.run(leases.begin, begun.id, "one", PARTS, "m\0").model == "m\N{REPLACEMENT CHARACTER}"


def test_what_is_wrong_with_a_file_is_kept_whatever_its_lines_hold(database: Database, begun: Batch) -> None:
    faults = [Fault("unknown_field", "Line 1: unknown field 'a\\x00'.", 1, "a\0").as_data()]

    database.run(leases.end, begun.id, "one", Status.FAILED, errors=faults)

    told = [{**faults[0], "param": "a\N{REPLACEMENT CHARACTER}"}]
    assert database.run(store.get, begun.id, "default").errors == told


def test_a_batch_is_forgotten_long_after_its_end_and_not_before_its_files(
    database: Database, new_batch: Callable[..., Batch]
) -> None:
    output = new_file(purpose="batch_output", blob="files/out")
    for status, made in ((Status.COMPLETED, output), (Status.FAILED, None), (None, None)):
        batch = new_batch()
        taken = database.run(leases.claim, "one", LEASE_S)
        assert taken is not None
        assert taken.id == batch.id
        if status is not None:
            database.run(leases.end, batch.id, "one", status, output=made)
    later = datetime.now(UTC) + DAY

    assert database.run(store.forget, later - 2 * DAY, 10) == 0
    assert database.run(store.forget, later, 10) == 1
    left = [(batch.status, batch.output_file) for batch in database.run(store.page, "default", after=None, limit=9)]
    assert left == [(Status.VALIDATING, None), (Status.COMPLETED, output.id)]
    database.run(files.delete, output.id, "default")
    assert database.run(store.forget, later, 10) == 1
