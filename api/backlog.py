"""What waits in the queues, and for which models: read from the broker, where it costs the least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tasks import keys
from tasks.errors import BrokerUnavailable
from tasks.queues import queue_names


@dataclass(frozen=True, slots=True)
class Backlog:
    """Messages that no worker has taken: of each queue, and of each model in each queue where it has any."""

    queues: Mapping[str, int] = field(default_factory=dict)
    models: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def of(self, model: str) -> int:
        """The messages of one model, all its profiles together."""
        return sum(count for (_, key), count in self.models.items() if key.partition(":")[0] == model)


async def read_backlog(redis: Redis) -> Backlog:
    """What waits now, of all tenants. Raises BrokerUnavailable. Over a stock transport nothing is known of models.

    Two trips, and one more where there are tenants besides the default one.
    """
    names = queue_names()
    try:
        async with redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.llen(name)
                pipe.llen(keys.tally(name))
                pipe.zrange(keys.models(name), 0, -1)
                pipe.zrange(keys.tenants(name), 0, -1)
            told = await pipe.execute()
        plain, tallied, listed, known = told[0::4], told[1::4], told[2::4], told[3::4]
        lists = [(name, model.decode(), "") for name, models in zip(names, listed, strict=True) for model in models]
        others = [(name, one.decode()) for name, tenants in zip(names, known, strict=True) for one in tenants if one]
        lists += await _lists(redis, others)
        counts = await _lengths(redis, lists)
    except (RedisError, OSError) as error:
        raise BrokerUnavailable from error
    queues = {name: one + other for name, one, other in zip(names, plain, tallied, strict=True)}
    models: dict[tuple[str, str], int] = {}
    for (queue, model, _), count in zip(lists, counts, strict=True):
        if count:
            models[queue, model] = models.get((queue, model), 0) + count
    return Backlog(queues, models)


async def _lists(redis: Redis, tenants: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """The lists of these tenants, given with their queues: queue, model and tenant of each."""
    if not tenants:
        return []
    async with redis.pipeline(transaction=False) as pipe:
        for queue, tenant in tenants:
            pipe.zrange(keys.models(queue, tenant), 0, -1)
        found = await pipe.execute()
    return [
        (queue, model.decode(), one) for (queue, one), models in zip(tenants, found, strict=True) for model in models
    ]


async def _lengths(redis: Redis, lists: Sequence[tuple[str, str, str]]) -> Sequence[int]:
    if not lists:
        return []
    async with redis.pipeline(transaction=False) as pipe:
        for queue, model, tenant in lists:
            pipe.llen(keys.messages(queue, model, tenant))
        found: Sequence[int] = await pipe.execute()
    return found
