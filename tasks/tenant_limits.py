"""What one tenant may: the settings say it, unless its own row does. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, time, timedelta
from math import ceil, floor
from typing import Any

from catalog.errors import suggestion
from tasks.errors import InvalidRequest, TaskError
from tasks.settings import Settings


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """0 is no limit; `burst` is how many jobs may come at once beyond the rate."""

    requests_per_s: float = 0.0
    burst: int = 50
    open_jobs: int = 0
    items_per_day: int = 0
    tokens_per_day: int = 0

    @property
    def any(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.requests_per_s or self.open_jobs or self.items_per_day or self.tokens_per_day)


LEAST_RATE = 1e-6
"""A job in twelve days. Until the next one is due it takes a time that can be told."""

NAMES = tuple(field.name for field in fields(TenantLimits))


def limits_of(settings: Settings, own: Mapping[str, Any]) -> TenantLimits:
    """Those of a tenant whose row says `own`."""
    general = {name: getattr(settings, f"tenant_{name}") for name in NAMES}
    return TenantLimits(**{**general, **{name: value for name, value in parsed(own).items() if name in NAMES}})


def parsed(own: Mapping[str, Any]) -> Mapping[str, float]:
    """What a tenant's row may say. Raises InvalidRequest for an unknown name, or a value that is no such limit."""
    for name, value in own.items():
        if name not in NAMES:
            raise InvalidRequest(f"{name[:100]!r} is no limit{suggestion(name, NAMES)}", param=name[:100])
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
            raise InvalidRequest(f"{name!r} must be a number, 0 or more.", param=name)
        if name != "requests_per_s" and value != int(value):
            raise InvalidRequest(f"{name!r} must be a whole number.", param=name)
        if name == "requests_per_s" and 0 < value < LEAST_RATE:
            raise InvalidRequest(f"'requests_per_s' must be 0 or at least {LEAST_RATE:f}.", param=name)
        if name == "burst" and value < 1:
            raise InvalidRequest("'burst' must be at least 1.", param=name)
    return {name: value if name == "requests_per_s" else int(value) for name, value in own.items()}


class Later(TaskError):
    """A tenant has used what it may for now."""

    retryable = True

    def __init__(self, message: str | None = None, *, param: str | None = None, retry_after_s: float = 1.0) -> None:
        super().__init__(message, param=param)
        self.retry_after_s = retry_after_s


class RateLimited(Later):
    """Too many jobs in so short a time; come again after the time in Retry-After."""

    code = "rate_limited"


class TooManyJobs(Later):
    """Too many jobs are queued or running; come again when some have ended."""

    code = "too_many_jobs"


class QuotaExceeded(Later):
    """What may be used in a day is used; come again when the next one begins, after the time in Retry-After."""

    code = "quota_exceeded"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Jobs that may come now, as of a moment in seconds. They grow by the rate, up to the burst."""

    jobs: float
    at: float

    def taken(self, limits: TenantLimits, now: float, left: float = 0.0) -> tuple[Bucket, float]:
        """The bucket after a job at `now`, and 0; or the same bucket and the seconds until a job may come.

        A job that leaves a part of the burst to others comes later.
        """
        jobs = min(float(limits.burst), self.jobs + max(0.0, now - self.at) * limits.requests_per_s)
        least = 1.0 + floor(limits.burst * left)
        if jobs >= least:
            return Bucket(jobs - 1.0, now), 0.0
        return Bucket(jobs, now), (least - jobs) / limits.requests_per_s


def too_fast(limits: TenantLimits, wait_s: float) -> RateLimited:
    """The refusal of a job that comes too soon by `wait_s`."""
    return RateLimited(
        f"This tenant may submit {limits.requests_per_s:g} jobs a second, and {limits.burst} at once; come again in "
        f"{max(1, ceil(wait_s))} s.",
        retry_after_s=wait_s,
    )


def too_many(limits: TenantLimits) -> TooManyJobs:
    """The refusal of a job beyond those that may be open."""
    return TooManyJobs(
        f"This tenant may have {limits.open_jobs} jobs queued or running at once; wait for some to end.",
        retry_after_s=1.0,
    )


def check_day(limits: TenantLimits, items: int, tokens: int, now: datetime) -> None:
    """Raises QuotaExceeded when the items or tokens of this UTC day leave nothing of it."""
    midnight = datetime.combine(now.date() + timedelta(days=1), time(), UTC)
    left_s = (midnight - now).total_seconds()
    for name, used, most in (("items", items, limits.items_per_day), ("tokens", tokens, limits.tokens_per_day)):
        if most and used >= most:
            raise QuotaExceeded(
                f"This tenant may use {most} {name} in a day (UTC), and has used {used}; come again tomorrow.",
                retry_after_s=left_s,
            )
