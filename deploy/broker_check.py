"""A look at the broker before work is given to it: one that evicts keys loses jobs in silence."""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks.settings import plain_redis

SAFE_POLICY = "noeviction"


def eviction_warning(broker_url: str) -> str | None:
    """What to tell the operator when the broker may throw messages away; None when it keeps them or cannot be asked."""
    url = plain_redis(broker_url)
    if not url.startswith(("redis://", "rediss://", "unix://")):
        return None
    try:
        with redis.Redis.from_url(
            url, socket_timeout=2, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0)
        ) as client:
            memory = client.info("memory")
    except redis.RedisError:
        return None
    return warning_for(str(memory.get("maxmemory_policy", SAFE_POLICY)), int(memory.get("maxmemory", 0)))


def warning_for(policy: str, limit_bytes: int) -> str | None:
    """The warning for an eviction policy. Pure."""
    if policy == SAFE_POLICY:
        return None
    now = f"at {limit_bytes} bytes" if limit_bytes else "once somebody sets maxmemory"
    return (
        f"the broker's maxmemory-policy is {policy}: {now} it throws away queued messages, and their jobs "
        f"wait until the sweeper sends them again. Set `maxmemory-policy {SAFE_POLICY}`"
    )
