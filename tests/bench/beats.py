"""What the device worker says of itself in its heartbeat: tokens asked for and tokens computed, since it started."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import msgpack
import redis.asyncio

from tasks import keys

PATIENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class Totals:
    """Running totals of all workers."""

    batches: int = 0
    items: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    device_s: float = 0.0

    def since(self, before: Totals) -> Totals:
        """What was added since `before`."""
        return Totals(
            self.batches - before.batches,
            self.items - before.items,
            self.real_tokens - before.real_tokens,
            self.padded_tokens - before.padded_tokens,
            self.device_s - before.device_s,
        )


async def fresh(redis_url: str) -> Totals:
    """The totals of a beat that comes after this call, so that all that has ended is in it. Raises TimeoutError."""
    now = time.time()
    client = redis.asyncio.Redis.from_url(redis_url)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                beats = [msgpack.unpackb(beat) for beat in (await client.hgetall(keys.WORKERS)).values()]
                if beats and all(beat["at"] > now for beat in beats):
                    return total(beats)
                await asyncio.sleep(0.1)
    finally:
        await client.aclose()


def total(beats: list[dict[str, Any]]) -> Totals:
    """The sum over the workers. Pure."""
    stats = [beat["stats"] for beat in beats]
    return Totals(
        batches=sum(int(one["batches"]) for one in stats),
        items=sum(int(one["items"]) for one in stats),
        real_tokens=sum(int(one["real_tokens"]) for one in stats),
        padded_tokens=sum(int(one["padded_tokens"]) for one in stats),
        device_s=sum(float(one["device_s"]) for one in stats),
    )
