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
    """What waits now, in two trips. Raises BrokerUnavailable. Over a stock transport nothing is known of models."""
    names = queue_names()
    try:
        async with redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.llen(name)
                pipe.llen(keys.tally(name))
                pipe.zrange(keys.models(name), 0, -1)
            told = await pipe.execute()
        plain, tallied, listed = told[0::3], told[1::3], told[2::3]
        places = [(name, model.decode()) for name, models in zip(names, listed, strict=True) for model in models]
        counts = await _lengths(redis, places)
    except (RedisError, OSError) as error:
        raise BrokerUnavailable from error
    queues = {name: one + other for name, one, other in zip(names, plain, tallied, strict=True)}
    return Backlog(queues, {place: count for place, count in zip(places, counts, strict=True) if count})


async def _lengths(redis: Redis, places: Sequence[tuple[str, str]]) -> Sequence[int]:
    if not places:
        return []
    async with redis.pipeline(transaction=False) as pipe:
        for queue, model in places:
            pipe.llen(keys.messages(queue, model))
        found: Sequence[int] = await pipe.execute()
    return found
