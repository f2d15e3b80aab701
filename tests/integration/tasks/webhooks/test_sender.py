"""A sender over real Postgres and real connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

from tasks.db import Database
from tasks.messages import Completion, Submission
from tasks.messages import Webhook as Hook
from tasks.prepare import job_id
from tasks.store import change, deliveries, endpoints, outbox
from tasks.store.deliveries import Filters
from tasks.store.finish import finish
from tasks.webhooks.endpoint import Delivery, Endpoint
from tasks.webhooks.schedule import State
from tasks.webhooks.sender import EACH, OUR_FAULT, Sender
from tests.integration.tasks.webhooks.conftest import PATIENCE_S, Receiver, Start

NewJob = Callable[..., Submission]
SECRET, NEW = b"s" * 32, b"n" * 32


class Clock:
    """The time of senders: it goes on by itself, and may be moved ahead."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def endpoint(database: Database, receiver: Receiver) -> Callable[..., Endpoint]:
    def make(path: str = "/", **given: Any) -> Endpoint:
        now = datetime.now(UTC)
        values: dict[str, Any] = {"url": receiver.url + path, "events": ["*"], "secret": SECRET, **given}
        values = {"caller": "default", **values}
        return database.run(endpoints.create, id_=job_id(now.timestamp()), now=now, **values)

    return make


def tell(database: Database, number: int = 1, data: Any = None, caller: str = "default") -> None:
    database.run(outbox.tell, caller, "batch.failed", UUID(int=number), data or {"id": "batch_1"})


def listed(database: Database, caller: str = "default", **filters: Any) -> list[Delivery]:
    return database.run(deliveries.page, caller, Filters(**filters), after=None, limit=1000)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - rows send no signal
            await asyncio.sleep(0.02)


def until_set(event: asyncio.Event) -> Callable[[int], Awaitable[int]]:
    """An answer that comes once the event is set."""

    async def hang(_: int) -> int:
        await event.wait()
        return 200

    return hang


async def test_an_attempt_follows_another_with_its_own_time_and_signature_under_one_id(
    database: Database, receiver: Receiver, start: Start, endpoint: Callable[..., Endpoint], clock: Clock
) -> None:
    made = endpoint()

    async def third_time(count: int) -> int:
        return 204 if count == 3 else 500

    receiver.answers["/"] = third_time
    tell(database, data={"id": "batch_1", "metadata": {"who": "Zoë 中", "share": 0.1}})
    sender = await start(clock=clock)
    await receiver.until(1)
    (delivery,) = listed(database)
    await until(lambda: len(database.run(deliveries.attempts, delivery.id)) == 1)
    database.run(endpoints.rotate, made.id, "default", NEW, clock())
    for count in (2, 3):
        clock.ahead += timedelta(seconds=301)
        sender.wake()
        await until(partial(lambda count: len(database.run(deliveries.attempts, delivery.id)) == count, count))
    assert listed(database)[0].state is State.DELIVERED

    came = receiver.came["/"]
    assert len({headers["webhook-id"] for headers, _ in came}) == 1
    assert len({headers["webhook-timestamp"] for headers, _ in came}) == 3
    assert len({headers["webhook-signature"] for headers, _ in came}) == 3
    assert len({body for _, body in came}) == 1
    assert json.loads(came[0][1])["data"]["metadata"] == {"who": "Zoë 中", "share": 0.1}
    # Each within the five minutes in which its receiver takes it, the later ones with the old secret as with the new.
    for number, (headers, body) in enumerate(came):
        skewed = {**headers, "webhook-timestamp": headers["webhook-timestamp"]}
        for key in (SECRET,) if number == 0 else (SECRET, NEW):
            assert signed(skewed, body, key)
    assert not signed(came[0][0], came[0][1], NEW)
    attempts = database.run(deliveries.attempts, listed(database)[0].id)
    assert [(one.number, one.status) for one in attempts] == [(1, 500), (2, 500), (3, 204)]


def signed(headers: dict[str, str], body: bytes, key: bytes) -> bool:
    """Whether the library verifies it, but for the time, of which the test's clock is ahead."""
    at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
    if abs(at - datetime.now(UTC)) < timedelta(minutes=4):
        try:
            Webhook(key).verify(body, headers)
        except WebhookVerificationError:
            return False
        return True
    return Webhook(key).sign(headers["webhook-id"], at, body.decode()) in headers["webhook-signature"].split()


async def test_what_was_written_when_nobody_sent_is_sent_once_somebody_does_and_once_only(
    database: Database,
    receiver: Receiver,
    start: Start,
    stored_job: NewJob,
    ending: Callable[..., Completion],
) -> None:
    job = stored_job(webhook=Hook(receiver.url + "/", SECRET))
    database.run(finish, [ending(job)])
    for _ in range(3):
        await start()
    (headers, body), *more = await receiver.until(1)
    await until(lambda: listed(database)[0].state is State.DELIVERED)
    assert more == []
    told = Webhook(SECRET).verify(body, headers)
    assert told["type"] == "job.succeeded"
    assert told["data"]["id"] == str(job.id)
    assert told["data"]["urls"]["result"] == f"https://roost.example.org/v1/jobs/{job.id}/result"


async def test_a_receiver_that_answers_too_late_gets_it_again_under_the_same_id(
    database: Database, receiver: Receiver, start: Start, endpoint: Callable[..., Endpoint], clock: Clock
) -> None:
    endpoint()
    late = asyncio.Event()

    async def slow(count: int) -> int:
        if count == 1:
            await late.wait()
        return 200

    receiver.answers["/"] = slow
    tell(database)
    sender = await start(timeout_s=0.3, clock=clock)
    await until(lambda: len(database.run(deliveries.attempts, listed(database)[0].id)) == 1)
    (attempt,) = database.run(deliveries.attempts, listed(database)[0].id)
    assert (attempt.status, "longer than 0.3 s" in (attempt.error or "")) == (None, True)
    clock.ahead += timedelta(seconds=6)
    sender.wake()
    came = await receiver.until(2)
    late.set()
    assert came[0][0]["webhook-id"] == came[1][0]["webhook-id"]


@pytest.mark.parametrize(
    ("answer", "state", "waits_s"),
    [
        (410, State.FAILED, None),
        (302, State.PENDING, 5),
        (404, State.PENDING, 5),
        (web.Response(status=429, headers={"Retry-After": "120"}), State.PENDING, 120),
        (web.Response(status=503, headers={"Retry-After": "999999"}), State.PENDING, 86_400),
    ],
)
async def test_what_an_answer_means(
    database: Database,
    receiver: Receiver,
    start: Start,
    endpoint: Callable[..., Endpoint],
    answer: Any,
    state: State,
    waits_s: int | None,
) -> None:
    made = endpoint("/here")
    receiver.answers["/here"] = answer
    tell(database)
    began = datetime.now(UTC)
    await start()
    await until(lambda: bool(database.run(deliveries.attempts, listed(database)[0].id)))
    (found,) = listed(database)
    assert found.state is state
    assert (found.next_at is None) == (waits_s is None)
    if waits_s is not None and found.next_at is not None:
        assert waits_s <= (found.next_at - began).total_seconds() <= waits_s + PATIENCE_S
    disabled = database.run(endpoints.get, made.id, "default").disabled_at is not None
    assert disabled == (answer == 410)


async def test_a_hundred_dead_receivers_do_not_delay_a_healthy_one(
    database: Database, receiver: Receiver, start: Start, endpoint: Callable[..., Endpoint]
) -> None:
    never = asyncio.Event()

    for number in range(100):
        receiver.answers[f"/dead{number}"] = until_set(never)
        endpoint(f"/dead{number}", caller=f"dead{number // 50}")
    for number in range(10):
        for caller in ("dead0", "dead1"):
            tell(database, number, caller=caller)
    sender = await start(timeout_s=30.0)
    # Each has one attempt, which is half of all places: none of them gets a second one.
    await until(lambda: len(sender._flying) == 100)
    endpoint("/well")
    for number in range(EACH):
        tell(database, number)
    sender.wake()
    await receiver.until(1, "/well")
    assert max(receiver.most_at_once.values()) <= EACH
    assert sum(count for path, count in receiver.at_once.items() if path != "/well") >= 100
    never.set()
    await until(lambda: not listed(database, caller="dead0", state=State.PENDING))


def many_hosts(database: Database, url: str, caller: str, count: int) -> None:
    """Deliveries to receivers that jobs of this caller named, each of a host of its own."""

    given = {"caller": caller, "url": url, "secret": SECRET, "count": count}
    statement = """
    INSERT INTO deliveries (id, caller, target, url, secret, type, object, data, created_at, next_at)
    SELECT gen_random_uuid(), %(caller)s, 'host ' || n || ' of ' || %(caller)s, %(url)s, %(secret)s, 'job.failed',
      gen_random_uuid(), '{}', now(), now() FROM generate_series(1, %(count)s) AS n
    """
    database.run(lambda conn: conn.exec_driver_sql(statement, given).close())


async def test_a_caller_whose_many_hosts_hang_leaves_places_to_others(
    database: Database, receiver: Receiver, start: Start, endpoint: Callable[..., Endpoint], clock: Clock
) -> None:
    never = asyncio.Event()

    receiver.answers["/dead"] = until_set(never)
    many_hosts(database, receiver.url + "/dead", "greedy", 60)
    sender = await start(timeout_s=120.0, most=20, clock=clock)
    await receiver.until(15, "/dead")
    endpoint("/well")
    receiver.answers["/well"] = 500
    tell(database)
    sender.wake()
    await receiver.until(1, "/well")
    # One that fails has a place, too, when it is tried again.
    receiver.answers["/well"] = 204
    clock.ahead = timedelta(minutes=1)
    sender.wake()
    await receiver.until(2, "/well")
    assert receiver.at_once["/dead"] == 15
    never.set()
    await until(lambda: not listed(database, caller="greedy", state=State.PENDING))


async def test_what_waits_for_a_host_holds_up_nobody_else_who_names_it(
    database: Database, receiver: Receiver, start: Start, stored_job: NewJob
) -> None:
    never = asyncio.Event()

    def end_one(path: str, caller: str) -> None:
        job = stored_job(caller=caller, webhook=Hook(receiver.url + path, SECRET, inline=False))
        database.run(change.cancel, job.id, caller)

    receiver.answers["/slow"] = until_set(never)
    for _ in range(2 * EACH):
        end_one("/slow", "greedy")
    sender = await start(timeout_s=30.0)
    await receiver.until(EACH, "/slow")
    end_one("/well", "another")
    sender.wake()
    await receiver.until(1, "/well")
    assert receiver.most_at_once["/slow"] == EACH
    never.set()
    await until(lambda: not listed(database, caller="greedy", state=State.PENDING))


async def test_a_sender_of_one_attempt_at_once_tries_again_what_failed(
    database: Database, receiver: Receiver, start: Start, endpoint: Callable[..., Endpoint], clock: Clock
) -> None:
    endpoint("/bad")
    receiver.answers["/bad"] = 500
    tell(database)
    sender = await start(most=1, clock=clock)
    await until(lambda: bool(sender._failing) and not sender._flying)
    clock.ahead = timedelta(minutes=1)
    sender.wake()
    await receiver.until(2, "/bad")


async def test_one_that_fails_gets_one_attempt_at_a_time(
    database: Database, receiver: Receiver, start: Start, endpoint: Callable[..., Endpoint]
) -> None:
    endpoint("/bad")
    receiver.answers["/bad"] = 500
    tell(database, 0)
    sender: Sender = await start()
    await until(lambda: bool(sender._failing) and not sender._flying)
    for number in range(1, 20):
        tell(database, number)
    receiver.most_at_once.clear()
    sender.wake()
    await receiver.until(20, "/bad")
    assert receiver.most_at_once["/bad"] == 1


async def test_two_senders_share_what_is_due_and_send_nothing_twice(
    database: Database, receiver: Receiver, start: Start, endpoint: Callable[..., Endpoint]
) -> None:
    for number in range(5):
        endpoint(f"/{number}")
    for number in range(60):
        tell(database, number)
    await asyncio.gather(start(), start())
    await until(lambda: not listed(database, state=State.PENDING))
    ids = [headers["webhook-id"] for came in receiver.came.values() for headers, _ in came]
    assert len(ids) == len(set(ids)) == 300
    assert max(receiver.most_at_once.values()) <= 2 * EACH


async def test_a_url_to_the_inside_is_refused_at_each_attempt(
    database: Database, start: Start, endpoint: Callable[..., Endpoint]
) -> None:
    endpoint(url="http://169.254.169.254/latest/meta-data")
    tell(database)
    await start()
    await until(lambda: bool(database.run(deliveries.attempts, listed(database)[0].id)))
    (attempt,) = database.run(deliveries.attempts, listed(database)[0].id)
    assert attempt.status is None
    assert "public host" in (attempt.error or "")


async def test_what_can_never_be_sent_fails_as_other_attempts_do(
    database: Database, receiver: Receiver, start: Start, endpoint: Callable[..., Endpoint], stored_job: NewJob
) -> None:
    async def broken(*_: Any) -> Any:
        return object()

    endpoint(inline=True)
    job = stored_job()
    database.run(change.cancel, job.id, "default")
    await start(results=broken)
    await until(lambda: bool(database.run(deliveries.attempts, listed(database)[0].id)))
    (attempt,) = database.run(deliveries.attempts, listed(database)[0].id)
    assert (attempt.status, attempt.error) == (None, OUR_FAULT)
    assert listed(database)[0].next_at is not None
    assert receiver.came == {}


async def test_a_sender_that_has_no_room_for_what_is_due_waits_until_it_has(
    database: Database, receiver: Receiver, start: Start, endpoint: Callable[..., Endpoint]
) -> None:
    looks = 0
    never = asyncio.Event()

    def counted() -> datetime:
        nonlocal looks
        looks += 1
        return datetime.now(UTC)

    endpoint("/slow"), endpoint("/well", caller="another")
    receiver.answers["/slow"] = until_set(never)
    for number in range(5):
        tell(database, number)
    database.run(soon, "another")
    await start(timeout_s=30.0, most=4, clock=counted)
    await until(lambda: receiver.at_once.get("/slow") == 2)
    before = looks
    await receiver.until(1, "/well")
    # One for each bell, attempt and time that something is due, not one after the other for half a second.
    assert looks - before < 20
    never.set()
    await until(lambda: not listed(database, state=State.PENDING))


def soon(conn: Any, caller: str) -> None:
    """Tell of something half a second from now."""
    outbox.tell(conn, caller, "batch.failed", UUID(int=1), {})
    conn.exec_driver_sql(
        "UPDATE deliveries SET next_at = next_at + interval '500 ms' WHERE caller = %(caller)s", {"caller": caller}
    )
