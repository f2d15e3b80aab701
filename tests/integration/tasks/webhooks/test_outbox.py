"""What is written for those who are told, in the transaction that ends jobs, and who takes it up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tasks.db import Database
from tasks.jobs import State as JobState
from tasks.messages import Completion, Submission, Webhook
from tasks.prepare import job_id
from tasks.store import accept, change, deliveries, endpoints, outbox, sweep
from tasks.store.deliveries import Filters
from tasks.store.endpoints import MOST_DROPPED
from tasks.store.finish import finish
from tasks.webhooks.endpoint import Delivery, DeliveryNotFound, Due, Endpoint, EndpointNotFound
from tasks.webhooks.schedule import State, Tried, after

NewJob = Callable[..., Submission]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def make_endpoint(database: Database, now: datetime) -> Callable[..., Endpoint]:
    def make(events: Sequence[str] = ("*",), caller: str = "default", **given: Any) -> Endpoint:
        values: dict[str, Any] = {"url": "https://hooks.example.org/in", "secret": b"s" * 32, **given}
        return database.run(
            endpoints.create, id_=job_id(now.timestamp()), caller=caller, events=events, now=now, **values
        )

    return make


@pytest.fixture
def pending(database: Database) -> Callable[..., list[Delivery]]:
    def read(caller: str = "default") -> list[Delivery]:
        found = database.run(deliveries.page, caller, Filters(state=State.PENDING), after=None, limit=1000)
        return found[::-1]

    return read


def claim(
    database: Database, now: datetime, *, most: int = 100, more: int | None = None, each: int = 8, **room: int
) -> list[Due]:
    given: dict[str, Any] = {"more": most if more is None else more, "each": each, "room": room}
    given |= {"share": most, "share_of_more": most, "held": {}}
    return database.run(deliveries.claim, now, MINUTE, most=most, **given)


def test_each_end_of_a_job_is_told_to_endpoints_that_ask_for_it(
    database: Database,
    stored_job: NewJob,
    ending: Callable[..., Completion],
    make_endpoint: Callable[..., Endpoint],
    pending: Callable[..., list[Delivery]],
    now: datetime,
) -> None:
    every, failures = make_endpoint(), make_endpoint(["job.failed", "job.expired"])
    make_endpoint(["batch.*"])
    make_endpoint(caller="another")
    disabled = make_endpoint()
    database.run(endpoints.disable, disabled.id, "default", now)
    good, bad, dropped, late = stored_job(), stored_job(), stored_job(), stored_job(deadline=1.0)
    ended = database.run(finish, [ending(good), ending(bad, JobState.FAILED)])
    changed = database.run(change.cancel, dropped.id, "default")
    moved = database.run(sweep.expire, now, 10)

    assert [*(one.told for one in ended), changed.told, *(one.told for one in moved)] == [True] * 4
    found = {(one.object, one.type, one.endpoint) for one in pending()}
    assert found == {
        (good.id, "job.succeeded", every.id),
        (bad.id, "job.failed", every.id),
        (bad.id, "job.failed", failures.id),
        (dropped.id, "job.cancelled", every.id),
        (late.id, "job.expired", every.id),
        (late.id, "job.expired", failures.id),
    }
    assert pending("another") == []


def test_a_job_tells_whom_it_names_once_for_each_end(
    database: Database,
    stored_job: NewJob,
    ending: Callable[..., Completion],
    pending: Callable[..., list[Delivery]],
    now: datetime,
) -> None:
    job = stored_job(webhook=Webhook("https://one.example.org:8443/x", b"k" * 32, inline=True))
    other = stored_job()
    database.run(finish, [ending(job, JobState.FAILED), ending(other, JobState.FAILED)])
    database.run(finish, [ending(job, JobState.FAILED)])
    (first,) = pending()
    assert (first.object, first.endpoint, first.type) == (job.id, None, "job.failed")
    (due,) = claim(database, datetime.now(UTC))
    assert (due.url, due.keys, due.inline, due.target) == (
        "https://one.example.org:8443/x",
        (b"k" * 32,),
        True,
        "host one.example.org:8443 of default",
    )
    again = database.run(change.retry, job.id, "default", now).job
    database.run(finish, [ending(_at(job, again.fence), JobState.SUCCEEDED)])
    assert [one.type for one in pending()] == ["job.failed", "job.succeeded"]


def _at(job: Submission, fence: int) -> Submission:
    return replace(job, fence=fence)


def test_lines_of_batches_and_documents_of_backfills_are_not_told_of_by_themselves(
    database: Database,
    stored_job: NewJob,
    ending: Callable[..., Completion],
    make_endpoint: Callable[..., Endpoint],
    pending: Callable[..., list[Delivery]],
) -> None:
    make_endpoint()
    parts = [stored_job(tags=["own", f"batch:batch_{7:032x}"]), stored_job(tags=[f"backfill:backfill_{7:032x}"])]
    whole = stored_job(tags=["batch:of mine"])
    told = database.run(finish, [ending(job) for job in (*parts, whole)])
    assert [one.told for one in told] == [False, False, True]
    assert [one.object for one in pending()] == [whole.id]


def test_the_end_of_a_batch_is_told(
    database: Database, make_endpoint: Callable[..., Endpoint], pending: Callable[..., list[Delivery]]
) -> None:
    make_endpoint(["batch.*"]), make_endpoint(["batch.completed"]), make_endpoint(["job.*"])
    id_ = UUID(int=5)
    assert database.run(outbox.tell, "default", "batch.completed", id_, {"id": "batch_5"}) == 2
    assert database.run(outbox.tell, "default", "batch.failed", id_, {"id": "batch_5"}) == 1
    assert [one.type for one in pending()] == ["batch.completed", "batch.completed", "batch.failed"]


def test_what_is_taken_is_nobody_elses_until_its_lease_ends(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime
) -> None:
    endpoint = make_endpoint()
    for number in range(5):
        database.run(outbox.tell, "default", "batch.failed", UUID(int=number), {})
    first = claim(database, now + MINUTE, most=2)
    rest = claim(database, now + MINUTE)
    assert (len(first), len(rest), claim(database, now + MINUTE)) == (2, 3, [])
    assert {due.attempts for due in (*first, *rest)} == {1}
    again = claim(database, now + 3 * MINUTE)
    assert {(due.attempts, due.tries, due.endpoint) for due in again} == {(2, 2, endpoint.id)}


def test_of_each_target_no_more_is_taken_than_it_has_room_for(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime
) -> None:
    made = [make_endpoint([f"batch.{name}"]) for name in ("completed", "failed", "expired")]
    for name in ("completed", "failed", "expired"):
        for number in range(20):
            database.run(outbox.tell, "default", f"batch.{name}", UUID(int=number), {})
    full, failing, healthy = (f"endpoint {one.id}" for one in made)
    taken = claim(database, now + MINUTE, **{full: 0, failing: 1})
    assert [sum(due.target == one for due in taken) for one in (full, failing, healthy)] == [0, 1, 8]


def test_receivers_that_fail_share_half_of_the_places_and_come_after_the_others(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime
) -> None:
    bad = [f"endpoint {make_endpoint(['batch.failed']).id}" for _ in range(6)]
    good = [f"endpoint {make_endpoint(['batch.completed']).id}" for _ in range(2)]
    for kind in ("failed", "completed"):
        database.run(outbox.tell, "default", f"batch.{kind}", UUID(int=1), {})
    taken = [due.target for due in claim(database, now + MINUTE, most=8, more=4, **dict.fromkeys(bad, 1))]
    assert (len(taken), set(good) <= set(taken)) == (4, True)
    assert claim(database, now + MINUTE, most=4, more=0, **dict.fromkeys(bad, 1)) == []


def test_the_next_time_to_look_is_of_what_is_not_due_yet(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime
) -> None:
    make_endpoint(["batch.failed"]), make_endpoint(["batch.completed"])
    assert database.run(deliveries.next_due, now) is None
    for kind in ("failed", "completed"):
        database.run(outbox.tell, "default", f"batch.{kind}", UUID(int=1), {})
    assert len(claim(database, now + MINUTE, most=1)) == 1
    # One waits for its lease; the other is due and had no room.
    assert database.run(deliveries.next_due, now + MINUTE) == now + 2 * MINUTE
    assert database.run(deliveries.next_due, now + 2 * MINUTE) is None


def tried(at: datetime, status: int | None = 500, error: str | None = None) -> Tried:
    return Tried(at, 12, status, error)


def record(database: Database, due: Due, what: Tried) -> None:
    database.run(deliveries.record, [(due, what, after(what, due.tries, 0.0))])


def test_every_attempt_is_listed_and_an_old_one_decides_nothing(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime
) -> None:
    make_endpoint()
    database.run(outbox.tell, "default", "batch.failed", UUID(int=1), {})
    (slow,) = claim(database, now + MINUTE)
    (quick,) = claim(database, now + 3 * MINUTE)
    record(database, quick, tried(now + 3 * MINUTE, 204))
    record(database, slow, tried(now + 4 * MINUTE, None, "too slow"))
    found = database.run(deliveries.get, slow.id, "default")
    assert (found.state, found.attempts) == (State.DELIVERED, 2)
    listed = database.run(deliveries.attempts, slow.id)
    assert [(one.number, one.status, one.error) for one in listed] == [(1, None, "too slow"), (2, 204, None)]


def test_an_endpoint_is_disabled_when_it_is_gone_and_what_waits_for_it_is_dropped_until_it_is_asked_for(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime
) -> None:
    endpoint = make_endpoint()
    for number in range(3):
        database.run(outbox.tell, "default", "batch.failed", UUID(int=number), {})
    (due,) = claim(database, now + MINUTE, most=1)
    record(database, due, tried(now + MINUTE, 410))
    gone = database.run(endpoints.get, endpoint.id, "default")
    assert (gone.disabled_at, gone.disabled_why) == (now + MINUTE, "it answered 410 Gone")
    states = [one.state for one in database.run(deliveries.page, "default", Filters(), after=None, limit=10)]
    assert sorted(states) == [State.DROPPED, State.DROPPED, State.FAILED]
    database.run(endpoints.enable, endpoint.id, "default")
    asked: dict[str, Any] = {
        "since": now - MINUTE,
        "until": now + MINUTE,
        "states": [State.DROPPED],
        "now": now,
        "limit": 10,
    }
    assert database.run(deliveries.redeliver_range, endpoint.id, "another", **asked) == []
    (first,) = database.run(deliveries.redeliver_range, endpoint.id, "default", **asked | {"limit": 1})
    (second,) = database.run(deliveries.redeliver_range, endpoint.id, "default", **asked)
    assert first < second
    asked["states"] = [State.PENDING]
    assert database.run(deliveries.redeliver_range, endpoint.id, "default", **asked, after=first) == [second]
    again = claim(database, now + MINUTE)
    assert [(due.attempts, due.tries) for due in again] == [(1, 1), (1, 1)]


def test_failures_are_counted_from_the_first_since_a_success(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime
) -> None:
    endpoint = make_endpoint()
    moments = [now + timedelta(days=days) for days in (0, 2, 3, 4, 7, 8.1)]
    for at, status in zip(moments, (500, 200, 500, 500, 500, 500), strict=True):
        database.run(outbox.tell, "default", "batch.failed", UUID(int=1), {})
        *_, due = claim(database, now + timedelta(days=30), most=100)
        record(database, due, tried(at, status))
        found = database.run(endpoints.get, endpoint.id, "default")
        assert (found.disabled_at is not None) == (at == moments[-1]), at
    assert found.disabled_why == "nothing but failures for 5 days"


def test_a_rotated_secret_signs_beside_the_new_one_for_a_day(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime
) -> None:
    endpoint = make_endpoint()
    database.run(outbox.tell, "default", "batch.failed", UUID(int=1), {})
    rotated = database.run(endpoints.rotate, endpoint.id, "default", b"n" * 32, now)
    assert rotated.old_secret_until == now + timedelta(hours=24)
    (due,) = claim(database, now + timedelta(hours=23))
    assert due.keys == (b"n" * 32, b"s" * 32)
    (due,) = claim(database, now + timedelta(hours=25))
    assert due.keys == (b"n" * 32,)


def test_redelivering_one_begins_a_new_series_under_its_id(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime
) -> None:
    make_endpoint()
    database.run(outbox.tell, "default", "batch.failed", UUID(int=1), {})
    (due,) = claim(database, now + MINUTE)
    record(database, due, tried(now + MINUTE, 200))
    database.run(deliveries.redeliver, due.id, "default", now + MINUTE)
    (again,) = claim(database, now + 2 * MINUTE)
    assert (again.id, again.attempts, again.tries) == (due.id, 2, 1)
    assert database.run(deliveries.forget, now + timedelta(days=1), 10) == 0
    record(database, again, tried(now + 2 * MINUTE, 200))
    assert database.run(deliveries.forget, now + timedelta(days=1), 10) == 1


def test_jobs_without_a_receiver_cost_one_look(database: Database, stored_job: NewJob) -> None:
    jobs = [stored_job() for _ in range(3)]
    statements: list[str] = []

    def count(conn: Any) -> frozenset[UUID]:
        from sqlalchemy import event

        event.listen(conn, "before_cursor_execute", lambda *args: statements.append(args[2]))
        return outbox.write(conn, [job.id for job in jobs])

    assert database.run(count) == frozenset()
    assert len(statements) == 1


def test_a_job_that_was_there_already_keeps_its_receiver(database: Database, new_job: NewJob) -> None:
    job = new_job(webhook=Webhook("https://one.example.org/", None))
    database.run(accept.insert, [job])
    database.run(accept.insert, [job])
    rows = database.run(lambda conn: conn.exec_driver_sql("SELECT url FROM job_webhooks").scalars().all())
    assert rows == ["https://one.example.org/"]


def test_what_waits_for_a_disabled_endpoint_is_not_taken_and_goes_in_sets(
    database: Database,
    make_endpoint: Callable[..., Endpoint],
    pending: Callable[..., list[Delivery]],
    now: datetime,
) -> None:
    bad, good = make_endpoint(["batch.failed"]), make_endpoint(["batch.completed"])
    for number in range(MOST_DROPPED + 5):
        database.run(outbox.test, "default", bad.id, {"number": number})
    database.run(outbox.tell, "default", "batch.completed", UUID(int=1), {})
    database.run(endpoints.disable, bad.id, "default", now)
    assert len(pending()) == 5 + 1
    assert [due.endpoint for due in claim(database, now + MINUTE)] == [good.id]
    assert database.run(deliveries.next_due, now - MINUTE) == now + 2 * MINUTE
    assert [database.run(deliveries.drop, now, 3) for _ in range(3)] == [3, 2, 0]
    assert [one.endpoint for one in pending()] == [good.id]


def test_deliveries_of_a_deleted_endpoint_are_seen_no_more_and_go_in_sets(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime
) -> None:
    gone, stays = make_endpoint(["batch.failed"]), make_endpoint(["batch.completed"])
    for number in range(5):
        database.run(outbox.tell, "default", "batch.failed", UUID(int=number), {})
    database.run(outbox.tell, "default", "batch.completed", UUID(int=1), {})
    taken = next(due for due in claim(database, now + MINUTE) if due.endpoint == gone.id)
    database.run(endpoints.delete, gone.id, "default")

    record(database, taken, tried(now + MINUTE))
    listed = database.run(deliveries.page, "default", Filters(), after=None, limit=10)
    assert [one.endpoint for one in listed] == [stays.id]
    with pytest.raises(DeliveryNotFound):
        database.run(deliveries.get, taken.id, "default")
    with pytest.raises(DeliveryNotFound):
        database.run(deliveries.redeliver, taken.id, "default", now)
    for change_ in (endpoints.get, endpoints.delete, endpoints.enable):
        with pytest.raises(EndpointNotFound):
            database.run(change_, gone.id, "default")
    assert [one.id for one in database.run(endpoints.page, "default", after=None, limit=10)] == [stays.id]
    assert [database.run(deliveries.remove, 3) for _ in range(3)] == [3, 2, 0]
    rows = database.run(lambda conn: conn.exec_driver_sql("SELECT id, secret FROM webhook_endpoints").all())
    assert [row[0] for row in rows] == [stays.id]


def test_an_endpoint_that_is_being_deleted_neither_stops_nor_fails_the_jobs_that_end(
    database: Database,
    database_url: str,
    stored_job: NewJob,
    ending: Callable[..., Completion],
    make_endpoint: Callable[..., Endpoint],
    pending: Callable[..., list[Delivery]],
) -> None:
    going, stays = make_endpoint(), make_endpoint()
    jobs = [stored_job(), stored_job()]
    elsewhere = Database(database_url)

    def meanwhile(conn: Any) -> None:
        endpoints.delete(conn, going.id, "default")
        (ended,) = elsewhere.run(finish, [ending(jobs[0])])
        assert (ended.state, ended.told) == (JobState.SUCCEEDED, True)

    database.run(meanwhile)
    elsewhere.close()
    # Nor does one that went after it was looked up.
    database.run(outbox.test, "default", going.id, {})
    database.run(finish, [ending(jobs[1])])
    assert [(one.object, one.endpoint) for one in pending()] == [(job.id, stays.id) for job in jobs]
