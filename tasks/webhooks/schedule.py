"""When an attempt follows another, and what one of them does to a delivery and to its endpoint. Pure.

The times between attempts are those that Standard Webhooks 1.0 recommends: each begins when the attempt before it has
failed, so that the last one is three days and four hours after the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum

DELAYS_S = (0, 5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds before each attempt: at once, then 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h after the last."""

JITTER = 0.2
"""A delay is longer by up to this part of it, so that what failed together does not come back together."""

MOST_RETRY_AFTER = timedelta(days=1)
"""A receiver that asks for more than this is tried all the same."""

FAILING_FOR = timedelta(days=5)
"""An endpoint that has had nothing but failures for so long is disabled."""

GONE = 410


class State(StrEnum):
    """Where a delivery stands. `dropped`: its endpoint was disabled before it could be told."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of an attempt that ended at `at`. Without a status there was no reply, and `error` says why."""

    at: datetime
    duration_ms: int
    status: int | None = None
    error: str | None = None
    retry_after: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the receiver has it."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """Whether the receiver wants nothing any more."""
        return self.status == GONE


@dataclass(frozen=True, slots=True)
class Next:
    """The delivery after an attempt; `at` is the time of the next one while it is pending."""

    state: State
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """How an endpoint does: since when it has had nothing but failures, and why it is to be disabled."""

    failing_since: datetime | None
    disable: str | None = None


def after(tried: Tried, tries: int, jitter: float) -> Next:
    """What becomes of a delivery after its attempt number `tries` of this series, from 1. `jitter` is in 0 to 1."""
    if tried.succeeded:
        return Next(State.DELIVERED)
    if tried.gone or tries >= len(DELAYS_S):
        return Next(State.FAILED)
    delay = timedelta(seconds=DELAYS_S[tries] * (1 + JITTER * jitter))
    asked = retry_after(tried.retry_after, tried.at) if tried.status in (429, 503) else None
    return Next(State.PENDING, tried.at + max(delay, asked or timedelta()))


def health(tried: Tried, failing_since: datetime | None) -> Health:
    """How an endpoint does after an attempt to it."""
    if tried.succeeded:
        return Health(None)
    since = failing_since or tried.at
    if tried.gone:
        return Health(since, "it answered 410 Gone")
    if tried.at - since >= FAILING_FOR:
        return Health(since, f"nothing but failures for {FAILING_FOR.days} days")
    return Health(since)


def retry_after(text: str | None, now: datetime) -> timedelta | None:
    """What a Retry-After asks for, as seconds or as a date, at most a day; None if it is neither."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        asked = timedelta(seconds=min(int(text.lstrip("0")[:9] or "0"), MOST_RETRY_AFTER.total_seconds()))
    else:
        try:
            at = parsedate_to_datetime(text)
            asked = (at if at.tzinfo else at.replace(tzinfo=UTC)) - now
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return min(max(asked, timedelta()), MOST_RETRY_AFTER)


def reason(status: int) -> str | None:
    """Why a reply of this status is a failure, in our words; None for a success."""
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return "a redirect, which is not followed: register the URL that it leads to"
    return _WORDS.get(status, f"status {status}")


_WORDS: Mapping[int, str] = {GONE: "410 Gone: the receiver wants no more"}
