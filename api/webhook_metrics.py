"""What senders of webhooks did and what waits for them, as metrics. The counts are of all senders, kept in Valkey."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tasks import keys
from tasks.errors import BrokerUnavailable

OUTCOMES = ("delivered", "refused", "unreachable")
"""What comes of an attempt: a status of success, any other, none."""


async def read_attempts(redis: Redis) -> Mapping[str, int]:
    """How many attempts there were, by what came of them. Raises BrokerUnavailable."""
    try:
        found: Mapping[Any, Any] = await redis.hgetall(keys.ATTEMPTS)
    except (RedisError, OSError) as error:
        raise BrokerUnavailable from error
    return {name.decode(): int(count) for name, count in found.items()}


def attempt_families(counts: Mapping[str, int]) -> list[Metric]:
    """Attempts by outcome; each has a series from the start, so that its first count is a rise."""
    family = CounterMetricFamily("roost_webhook_attempts", "Attempts to deliver webhooks", labels=["outcome"])
    for outcome in OUTCOMES:
        family.add_metric([outcome], counts.get(outcome, 0))
    return [family]


def pending_families(pending: int, oldest: datetime | None, now: datetime) -> list[Metric]:
    """How many deliveries wait, and for how long the next attempt of one of them has been due."""
    late = 0.0 if oldest is None else max(0.0, (now - oldest).total_seconds())
    return [
        GaugeMetricFamily("roost_webhooks_pending", "Deliveries that have not ended", value=pending),
        GaugeMetricFamily(
            "roost_webhooks_oldest_due_seconds", "How long the attempt that waits longest has been due", value=late
        ),
    ]
