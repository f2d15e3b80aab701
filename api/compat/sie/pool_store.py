"""The leases of pools, in Valkey, which ends them by itself: every API process sees the same ones.

A pool reserves nothing: all workers take all work. It is a name with what was asked for it, so that clients who make
one before they begin go on to work, and are told truly which workers there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tasks import keys
from tasks.errors import BrokerUnavailable, Overloaded

LEASE_S = 300
"""A pool that nobody renews is gone after this. The peer's client renews each minute."""

MOST = 1000
"""Pools at a time."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool by its name: what was asked for, and when it was made and last renewed, in Unix seconds."""

    name: str
    created: float
    renewed: float
    gpus: Mapping[str, int] = field(default_factory=dict)
    minimum_workers: int = 0
    pinned_models: tuple[str, ...] = ()


class PoolStore:
    """Reads and writes the leases. All methods raise BrokerUnavailable."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def put(self, pool: Pool) -> None:
        """Write a pool whose lease begins now. Raises Overloaded when there are too many."""
        ends = pool.renewed + LEASE_S
        try:
            await self._redis.zremrangebyscore(keys.POOLS, "-inf", pool.renewed)
            if await self._redis.zscore(keys.POOLS, pool.name) is None and await self._redis.zcard(keys.POOLS) >= MOST:
                raise Overloaded(
                    f"There are {MOST} pools already; delete one, or wait {LEASE_S} s for its lease to end."
                )
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.set(keys.pool(pool.name), orjson.dumps(asdict(pool)), ex=LEASE_S)
                pipe.zadd(keys.POOLS, {pool.name: ends})
                await pipe.execute()
        except (RedisError, OSError) as error:
            raise BrokerUnavailable(_AWAY) from error

    async def get(self, name: str) -> Pool | None:
        """A pool whose lease runs."""
        try:
            return _read(await self._redis.get(keys.pool(name)))
        except (RedisError, OSError) as error:
            raise BrokerUnavailable(_AWAY) from error

    async def all(self, now: float) -> list[Pool]:
        """The pools whose leases run, by name."""
        try:
            names: list[Any] = await self._redis.zrangebyscore(keys.POOLS, now, "+inf")
            values = await self._redis.mget([keys.pool(bytes(name).decode()) for name in names]) if names else []
        except (RedisError, OSError) as error:
            raise BrokerUnavailable(_AWAY) from error
        found = [pool for value in values if (pool := _read(value)) is not None]
        return sorted(found, key=lambda pool: pool.name)

    async def delete(self, name: str) -> bool:
        """End a lease; whether there was one."""
        try:
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.delete(keys.pool(name))
                pipe.zrem(keys.POOLS, name)
                deleted, _ = await pipe.execute()
        except (RedisError, OSError) as error:
            raise BrokerUnavailable(_AWAY) from error
        return bool(deleted)


_AWAY = "Pools cannot be read or written: Valkey cannot be reached."


def _read(value: object) -> Pool | None:
    if not isinstance(value, bytes):
        return None
    found: dict[str, Any] = orjson.loads(value)
    return Pool(**{**found, "pinned_models": tuple(found["pinned_models"])})
