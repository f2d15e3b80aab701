from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tasks.webhooks.schedule import (
    DELAYS_S,
    FAILING_FOR,
    JITTER,
    MOST_RETRY_AFTER,
    Health,
    Next,
    State,
    Tried,
    after,
    health,
    reason,
    retry_after,
)

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
FAILED = Tried(NOON, 12, 500)


def test_attempts_come_as_standard_webhooks_recommends() -> None:
    assert DELAYS_S[0] == 0
    waits = [after(FAILED, tries, 0.0) for tries in range(1, len(DELAYS_S) + 1)]
    hours = [wait and wait / timedelta(hours=1) for wait in (then.at and then.at - NOON for then in waits)]
    assert hours == [pytest.approx(5 / 3600), pytest.approx(5 / 60), 0.5, 2, 5, 10, 14, 20, 24, None]
    assert [then.state for then in waits] == [State.PENDING] * 9 + [State.FAILED]


@pytest.mark.parametrize("tries", [1, 5, 9])
def test_a_delay_is_longer_by_chance_and_never_shorter(tries: int) -> None:
    found = [after(FAILED, tries, jitter).at for jitter in (0.0, 0.5, 1.0)]
    delay = DELAYS_S[tries] * SECOND
    assert found == [NOON + delay * (1 + JITTER * jitter) for jitter in (0.0, 0.5, 1.0)]


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_status_of_success_ends_it(status: int) -> None:
    for tries in (1, 10, 11):
        assert after(Tried(NOON, 12, status), tries, 0.5) == Next(State.DELIVERED)


@pytest.mark.parametrize("status", [None, 100, 199, 300, 301, 302, 307, 400, 401, 404, 408, 429, 500, 503, 599])
def test_all_else_is_tried_again(status: int | None) -> None:
    then = after(Tried(NOON, 12, status), 1, 0.0)
    assert then == Next(State.PENDING, NOON + 5 * SECOND)


def test_a_receiver_that_is_gone_ends_it_at_once() -> None:
    assert after(Tried(NOON, 12, 410), 1, 0.0) == Next(State.FAILED)


@pytest.mark.parametrize(
    ("status", "asked", "waits"),
    [
        (429, "120", 120),
        (503, "120", 120),
        (503, "2", 5),  # no sooner than the schedule has it
        (503, "0", 5),
        (429, "0000000000120", 120),
        (429, "99999999999999999999999999", 86_400),
        (503, "Fri, 01 May 2026 12:10:00 GMT", 600),
        (503, "Fri, 01 May 2026 11:00:00 GMT", 5),
        (503, "Sat, 01 May 2027 12:00:00 GMT", 86_400),
        (503, "soon", 5),
        (503, "-7", 5),
        (503, "", 5),
        (500, "120", 5),  # it has a meaning with 429 and 503 alone
        (302, "120", 5),
    ],
)
def test_a_receiver_that_asks_to_be_left_alone_is_left_alone_within_bounds(status: int, asked: str, waits: int) -> None:
    assert after(Tried(NOON, 12, status, retry_after=asked), 1, 0.0).at == NOON + waits * SECOND


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "x",
        "1.5",
        "-1",
        "٣",
        "1e3",
        "Fri, 99 May 2026 12:00:00 GMT",
        "9" * 400 + "x",
        ",",
        "1 2 3 4 5",
        "Fri, 01 May 99999999999 12:00:00 GMT",
        "Fri, 01 May 2026 12:00:00 +99999999999999999999",
        "Fri, 01 May 2026 " + "9" * 5000 + ":00:00 GMT",
    ],
)
def test_a_retry_after_that_says_no_time_says_nothing(text: str | None) -> None:
    assert retry_after(text, NOON) is None


@pytest.mark.parametrize("text", ["9" * 400, "Sat, 01 May 2027 12:00:00 GMT", "Sat, 01 May 2027 12:00:00 -0000"])
def test_a_retry_after_is_at_most_a_day(text: str) -> None:
    assert retry_after(text, NOON) == MOST_RETRY_AFTER


def test_an_endpoint_fails_since_the_first_failure_and_until_a_success() -> None:
    assert health(FAILED, None) == Health(NOON)
    assert health(FAILED, NOON - DAY) == Health(NOON - DAY)
    assert health(Tried(NOON, 12, 204), NOON - 30 * DAY) == Health(None)
    assert health(Tried(NOON, 12, None, "too slow"), None) == Health(NOON)


def test_an_endpoint_that_fails_for_five_days_is_disabled() -> None:
    assert FAILING_FOR == 5 * DAY
    assert health(FAILED, NOON - FAILING_FOR + SECOND).disable is None
    assert health(FAILED, NOON - FAILING_FOR).disable == "nothing but failures for 5 days"


def test_an_endpoint_that_is_gone_is_disabled_at_once() -> None:
    assert health(replace(FAILED, status=410), None) == Health(NOON, "it answered 410 Gone")


@pytest.mark.parametrize(
    ("status", "said"), [(204, None), (302, "a redirect"), (410, "410 Gone"), (404, "status 404"), (500, "status 500")]
)
def test_a_failure_is_told_in_our_words(status: int, said: str | None) -> None:
    found = reason(status)
    assert found is None if said is None else found is not None and found.startswith(said)
