"""The rows of backfills: who may move them, what is skipped, and what is kept for how long."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tasks.backfills.backfill import PREFIX, TAG, Backfill, BackfillEnded, Document, DocumentState, Done, Status, Tally
from tasks.db import Database
from tasks.files import shown_id
from tasks.messages import Submission
from tasks.prepare import job_id
from tasks.store import backfill_leases as leases
from tasks.store import backfills as store
from tasks.store import read
from tasks.store.leases import LeaseLost

LEASE_S = 30.0
New = Callable[..., Backfill]


@pytest.fixture
def new_backfill(database: Database) -> New:
    def make(**fields: Any) -> Backfill:
        now = datetime.now(UTC)
        id_ = job_id(now.timestamp())
        values: dict[str, Any] = {
            "id": id_,
            "caller": "default",
            "name": "nightly",
            "plan": {},
            "recipe": b"r",
            "folder": f"backfills/{id_.hex}",
            "created_at": now,
        }
        return database.run(store.create, store.NewBackfill(**values | fields))[0]

    return make


def listed(database: Database, backfill: Backfill, names: str = "abc", feeder: str = "one") -> Backfill:
    """Taken by a feeder, with a document for each letter."""
    assert database.run(leases.claim, feeder, LEASE_S) is not None
    found = [Document(number, name, f"file-{name}", f"print {name}") for number, name in enumerate(names, 1)]
    database.run(leases.add, backfill.id, feeder, found)
    return database.run(leases.begin, backfill.id, feeder)


def ended(database: Database, backfill: Backfill, feeder: str = "one") -> None:
    tally = database.run(leases.tally, backfill.id)
    database.run(leases.end, backfill.id, feeder, Status.COMPLETED, tally, TAG + shown_id(PREFIX, backfill.id))


def outputs(database: Database, backfill: Backfill) -> list[str]:
    return [key for _, key in database.run(leases.outputs, backfill.id, 0, 10)]


def test_a_document_is_done_once_and_its_jobs_go_with_it(
    database: Database, new_backfill: New, stored_job: Callable[..., Submission]
) -> None:
    backfill = listed(database, new_backfill())
    job, done = stored_job(), Done(1, 3, ["text:text"], "backfills/x/1")

    for _ in range(2):
        database.run(leases.finish_document, backfill.id, "one", done, [job.id])

    assert database.run(leases.tally, backfill.id) == Tally(completed=1, rows=3)
    assert database.run(read.job, job.id, "default") is None
    with pytest.raises(LeaseLost):
        database.run(leases.finish_document, backfill.id, "one", Done(1, 4, [], "backfills/x/other"), [])


def test_failed_documents_wait_again_some_at_a_time_once_their_backfill_has_ended(
    database: Database, new_backfill: New
) -> None:
    backfill = listed(database, new_backfill(), "abcde")
    for number in (1, 2, 3, 5):
        done = Done(number, error={"code": "x", "message": "m"} if number != 2 else None)
        database.run(leases.finish_document, backfill.id, "one", done, [])

    def retry(caller: str, after: int) -> int | None:
        return database.run(store.retry, backfill.id, caller, after, 2)

    assert retry("default", 0) is None
    ended(database, backfill)

    assert retry("bob", 0) is None
    assert (retry("default", 0), retry("default", 3), retry("default", 5)) == (3, 5, None)
    resumed = database.run(store.resume, backfill.id, "default")

    assert (resumed.status, resumed.round) == (Status.IN_PROGRESS, 1)
    assert [one.number for one in database.run(leases.waiting, backfill.id, 0, 9)] == [1, 3, 4, 5]
    assert retry("default", 0) is None


def test_progress_is_when_the_last_document_ended(database: Database, new_backfill: New) -> None:
    backfill = listed(database, new_backfill())
    database.run(leases.finish_document, backfill.id, "one", Done(1, 3, ["text:text"], "backfills/x/1"), [])

    ended(database, backfill)

    after = database.run(store.get, backfill.id, "default")
    assert after.progress_at == after.ended_at is not None


def test_who_has_lost_the_lease_writes_nothing(database: Database, new_backfill: New) -> None:
    backfill = listed(database, new_backfill())
    database.run(leases.release, "one")
    assert database.run(leases.claim, "two", LEASE_S) is not None

    for write in (
        lambda: database.run(leases.tend, backfill.id, "one", LEASE_S, Tally()),
        lambda: database.run(leases.add, backfill.id, "one", []),
        lambda: database.run(leases.finish_document, backfill.id, "one", Done(1), []),
        lambda: database.run(leases.finalize, backfill.id, "one"),
        lambda: ended(database, backfill),
    ):
        with pytest.raises(LeaseLost):
            write()


def test_names_that_are_there_twice_are_told_with_their_numbers(database: Database, new_backfill: New) -> None:
    backfill = listed(database, new_backfill(), "abcab")

    assert database.run(leases.twice, backfill.id, 10) == [("a", 1, 4), ("b", 2, 5)]


def test_what_earlier_ones_have_done_is_skipped_newest_first(database: Database, new_backfill: New) -> None:
    for number, names in enumerate(("ab", "b")):
        backfill = listed(database, new_backfill(), names)
        for place, name in enumerate(names, 1):
            done = Done(place, 1, [], f"backfills/{number}/{name}")
            database.run(leases.finish_document, backfill.id, "one", done, [])
        ended(database, backfill)
    for other in ({"caller": "other"}, {"name": "other"}, {"recipe": b"other"}):
        apart = listed(database, new_backfill(**other))
        assert database.run(leases.earlier, apart.id, 5) == []
        ended(database, apart)
    backfill = listed(database, new_backfill(), "abc")

    for earlier in database.run(leases.earlier, backfill.id, 5):
        database.run(leases.skip, backfill.id, "one", earlier, 1, 2)

    assert outputs(database, backfill) == ["backfills/0/a", "backfills/1/b"]
    assert [one.name for one in database.run(leases.waiting, backfill.id, 0, 10)] == ["c"]


def test_a_paused_one_is_taken_by_nobody_until_it_is_resumed(database: Database, new_backfill: New) -> None:
    backfill = new_backfill()
    assert database.run(store.pause, backfill.id, "default").status is Status.PAUSED
    assert database.run(leases.claim, "one", LEASE_S) is None

    assert database.run(store.resume, backfill.id, "default").status is Status.VALIDATING
    assert database.run(leases.claim, "one", LEASE_S) is not None


def test_what_has_ended_is_resumed_with_what_is_left(database: Database, new_backfill: New) -> None:
    backfill = listed(database, new_backfill())
    error = {"step": "parse", "place": 0, "code": "damaged", "message": "It is."}
    database.run(leases.finish_document, backfill.id, "one", Done(1, 1, [], "backfills/x/1"), [])
    database.run(leases.finish_document, backfill.id, "one", Done(2, error=error), [])
    failed = database.run(store.documents, backfill.id, state=DocumentState.FAILED, after=0, limit=5)
    assert [(one.name, one.error) for one in failed] == [("b", error)]
    ended(database, backfill)

    again = database.run(store.resume, backfill.id, "default")

    assert (again.status, again.round, again.failed, again.ended_at) == (Status.IN_PROGRESS, 1, 0, None)
    assert [one.name for one in database.run(leases.waiting, backfill.id, 0, 10)] == ["b", "c"]


def test_moves_that_make_no_sense_are_refused(database: Database, new_backfill: New) -> None:
    backfill = listed(database, new_backfill(), "a")
    database.run(leases.finish_document, backfill.id, "one", Done(1), [])
    ended(database, backfill)

    for move in (store.pause, store.resume, store.cancel):
        with pytest.raises(BackfillEnded):
            database.run(move, backfill.id, "default")


def test_rows_of_documents_are_kept_for_as_long_as_a_backfill_names_them(database: Database, new_backfill: New) -> None:
    backfill = listed(database, new_backfill(), "a")
    database.run(leases.finish_document, backfill.id, "one", Done(1, 1, [], "backfills/x/1"), [])
    ended(database, backfill)
    later = datetime.now(UTC) + timedelta(days=1)
    assert database.run(store.kept, ["backfills/x/1", "backfills/x/2"]) == {"backfills/x/1"}
    assert database.run(store.forget, datetime.now(UTC) - timedelta(days=1), 5) == 0

    assert database.run(store.forget, later, 5) == 1

    assert database.run(store.kept, ["backfills/x/1"]) == set()


def test_the_end_is_told_to_those_who_ask_for_it(database: Database, new_backfill: New) -> None:
    def deliveries(conn: Any) -> list[str]:
        return list(conn.exec_driver_sql("SELECT type FROM deliveries").scalars())

    backfill = listed(database, new_backfill(), "a")
    database.run(
        lambda conn: conn.exec_driver_sql(
            "INSERT INTO webhook_endpoints (id, caller, url, events, secret, created_at) "
            "VALUES (gen_random_uuid(), 'default', 'https://a.example', '{backfill.*}', '\\x00', now())"
        ).close()
    )
    database.run(leases.finish_document, backfill.id, "one", Done(1), [])

    ended(database, backfill)

    assert database.run(deliveries) == ["backfill.completed"]
