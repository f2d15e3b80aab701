"""What becomes of deliveries and endpoints that somebody changes while attempts are under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tasks.db import Database
from tasks.store import deliveries, endpoints, outbox
from tasks.webhooks.endpoint import MOST_ATTEMPTS, Delivery, Endpoint
from tasks.webhooks.schedule import DELAYS_S, State
from tests.integration.tasks.webhooks.test_outbox import MINUTE, claim, make_endpoint, now, pending, record, tried

__all__ = ["make_endpoint", "now", "pending"]


def test_what_is_redelivered_while_its_last_attempt_is_under_way_begins_anew_whatever_comes_of_that(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime
) -> None:
    make_endpoint()
    database.run(outbox.tell, "default", "batch.failed", UUID(int=1), {})
    at = now + MINUTE
    for number, delay_s in enumerate(DELAYS_S):
        at += timedelta(seconds=delay_s)
        (due,) = claim(database, at)
        if number < len(DELAYS_S) - 1:
            record(database, due, tried(at))
    database.run(deliveries.redeliver, due.id, "default", at)
    record(database, due, tried(at))
    found = database.run(deliveries.get, due.id, "default")
    assert (found.state, found.next_at) == (State.PENDING, at)
    assert len(database.run(deliveries.attempts, due.id)) == len(DELAYS_S)


def test_an_attempt_at_a_url_that_its_endpoint_has_no_more_says_nothing_of_the_endpoint(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime, pending: Callable[..., list[Delivery]]
) -> None:
    endpoint = make_endpoint()
    for number in range(2):
        database.run(outbox.tell, "default", "batch.failed", UUID(int=number), {})
    (due,) = claim(database, now + MINUTE, most=1)
    database.run(endpoints.update, endpoint.id, "default", url="https://new.example.org/in")
    record(database, due, tried(now + MINUTE, 410))
    found = database.run(endpoints.get, endpoint.id, "default")
    assert (found.disabled_at, found.failing_since) == (None, None)
    assert len(pending()) == 1


def test_of_any_number_of_attempts_the_newest_are_shown_in_order(
    database: Database, make_endpoint: Callable[..., Endpoint], pending: Callable[..., list[Delivery]]
) -> None:
    make_endpoint()
    database.run(outbox.tell, "default", "batch.failed", UUID(int=1), {})
    (delivery,) = pending()
    made = "INSERT INTO delivery_attempts SELECT %(id)s, n, now(), 1, 500 FROM generate_series(1, 1500) AS n"
    database.run(lambda conn: conn.exec_driver_sql(made, {"id": delivery.id}).close())
    shown = [one.number for one in database.run(deliveries.attempts, delivery.id)]
    assert shown == list(range(1501 - MOST_ATTEMPTS, 1501))


def test_callers_take_turns_and_none_has_more_than_its_share(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime
) -> None:
    for caller, count in (("greedy", 9), ("another", 3)):
        for _ in range(count):
            make_endpoint(caller=caller)
        database.run(outbox.tell, caller, "batch.failed", UUID(int=1), {})
    given: dict[str, Any] = {"more": 9, "each": 8, "room": {}, "share": 6, "share_of_more": 6}

    def take(most: int, **held: int) -> Counter[str]:
        taken = database.run(deliveries.claim, now + MINUTE, MINUTE, most=most, held=held, **given)
        return Counter(due.caller for due in taken)

    assert take(4) == {"greedy": 2, "another": 2}
    assert take(9, greedy=2, another=2) == {"greedy": 4, "another": 1}
    assert take(9, greedy=6, another=3) == {}
    assert take(9) == {"greedy": 3}


def test_a_rotation_that_is_asked_for_twice_keeps_the_secret_that_receivers_have(
    database: Database, make_endpoint: Callable[..., Endpoint], now: datetime
) -> None:
    endpoint = make_endpoint()
    database.run(outbox.tell, "default", "batch.failed", UUID(int=1), {})
    for later in (timedelta(), MINUTE):
        found = database.run(endpoints.rotate, endpoint.id, "default", b"n" * 32, now + later)
        assert found.old_secret_until == now + timedelta(hours=24)
    (due,) = claim(database, now + MINUTE)
    assert due.keys == (b"n" * 32, b"s" * 32)
