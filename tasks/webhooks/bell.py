"""Telling senders that something is due. A hint: what they do not hear they find by looking, some seconds later."""

from __future__ import annotations

import logging

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tasks import keys

log = logging.getLogger(__name__)


async def ring(redis: Redis) -> None:
    """After the commit of deliveries."""
    try:
        await redis.publish(keys.DELIVERIES, b"")
    except (RedisError, OSError) as error:
        log.debug("the bell of webhooks was not heard: %s", type(error).__name__)
