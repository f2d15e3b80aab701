from __future__ import annotations

import pytest

from deploy.broker_check import eviction_warning, warning_for


def test_a_broker_that_keeps_everything_gets_no_warning() -> None:
    assert warning_for("noeviction", 20_000_000) is None


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_an_evicting_broker_gets_a_warning_that_says_what_to_set(policy: str) -> None:
    warning = warning_for(policy, 20_000_000) or ""

    assert policy in warning
    assert "maxmemory-policy noeviction" in warning


def test_a_broker_that_is_not_redis_is_not_asked() -> None:
    assert eviction_warning("amqp://localhost:1//") is None
