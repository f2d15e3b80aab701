"""What a tenant may, and when it may again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import InvalidRequest
from tasks.settings import Settings
from tasks.tenant_limits import (
    NAMES,
    Bucket,
    QuotaExceeded,
    TenantLimits,
    check_day,
    limits_of,
    parsed,
    too_fast,
    too_many,
)


def test_a_tenant_has_the_limits_of_the_settings_but_for_its_own() -> None:
    settings = Settings(tenant_requests_per_s=5, tenant_open_jobs=7)
    assert limits_of(settings, {}) == TenantLimits(requests_per_s=5, open_jobs=7)
    assert limits_of(settings, {"open_jobs": 0, "burst": 2}) == TenantLimits(requests_per_s=5, burst=2)
    assert not limits_of(Settings(), {}).any
    assert limits_of(Settings(), {"tokens_per_day": 1}).any


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"request_per_s": 1}, "did you mean 'requests_per_s'"),
        ({"open_jobs": -1}, "0 or more"),
        ({"open_jobs": 1.5}, "whole number"),
        ({"open_jobs": True}, "a number"),
        ({"open_jobs": "5"}, "a number"),
        ({"requests_per_s": float("nan")}, "a number"),
        ({"burst": 0}, "at least 1"),
    ],
)
def test_what_is_no_limit_is_named(own: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parsed(own)


def test_every_limit_is_a_setting() -> None:
    assert {f"tenant_{name}" for name in NAMES} <= set(Settings.model_fields)


@given(
    rate=st.floats(0.1, 1000),
    burst=st.integers(1, 50),
    gaps=st.lists(st.floats(0, 5), min_size=1, max_size=60),
)
def test_never_more_than_the_burst_and_what_has_grown_since(rate: float, burst: int, gaps: list[float]) -> None:
    limits = TenantLimits(requests_per_s=rate, burst=burst)
    bucket, now, passed = Bucket(burst, 0.0), 0.0, 0
    for gap in gaps:
        now += gap
        after, wait_s = bucket.taken(limits, now)
        if wait_s:
            assert bucket.taken(limits, now + wait_s + 1e-6)[1] == 0.0
        else:
            passed += 1
        bucket = after
        assert passed <= burst + now * rate + 1e-6


def test_the_quota_of_a_day_ends_at_midnight() -> None:
    limits, late = TenantLimits(items_per_day=10, tokens_per_day=100), datetime(2026, 12, 1, 23, 59, 30, tzinfo=UTC)
    check_day(limits, 9, 99, late)
    check_day(TenantLimits(), 10**12, 10**12, late)
    for items, tokens, what in ((10, 0, "10 items"), (0, 100, "100 tokens")):
        with pytest.raises(QuotaExceeded, match=what) as caught:
            check_day(limits, items, tokens, late)
        assert caught.value.retry_after_s == 30.0


def test_a_refusal_says_which_limit_it_is_and_when_to_come_again() -> None:
    limits = TenantLimits(requests_per_s=0.5, burst=1, open_jobs=3)
    assert "0.5 jobs a second" in too_fast(limits, 1.2).message
    assert (too_fast(limits, 1.2).retry_after_s, too_fast(limits, 1.2).retryable) == (1.2, True)
    assert "3 jobs" in too_many(limits).message
