"""What the feeder works with: the parts of the API that admit jobs, and the store of files."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from redis.asyncio import Redis

from api.asking import Asking
from api.presence import Presence
from catalog.live import LiveCatalog
from catalog.loader import Catalog
from tasks.blobs import Blobs
from tasks.catalog import live_catalog
from tasks.costs import Prices
from tasks.counting import Counting
from tasks.db import AsyncDatabase
from tasks.dispatch import Publisher
from tasks.prepare import Limits
from tasks.settings import Settings
from tasks.submit import Submitter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Feeding:
    """The parts of one feeder; those of `api.services.Door` among them."""

    settings: Settings
    limits: Limits
    clock: Callable[[], float]
    catalog: LiveCatalog
    asking: Asking
    counting: Counting
    database: AsyncDatabase
    redis: Redis
    submitter: Submitter
    presence: Presence
    prices: Prices
    blobs: Blobs


@asynccontextmanager
async def feeding(settings: Settings, catalog: Catalog | None = None) -> AsyncIterator[Feeding]:
    """Make the parts, and take them apart again."""
    async with AsyncExitStack() as stack:
        live = live_catalog(settings) if catalog is None else LiveCatalog.fixed(catalog)
        stack.callback(live.close)
        if catalog is None and settings.catalog_poll_s:
            live.watch(settings.catalog_poll_s, lambda change: None)
        asking = Asking(live)
        stack.callback(asking.close)
        database = AsyncDatabase(settings.database_url, settings.pool_size, name="roost-feeder")
        stack.push_async_callback(database.close)
        redis = Redis.from_url(settings.redis_url, socket_timeout=2.0, socket_connect_timeout=2.0)
        stack.push_async_callback(redis.aclose)
        publisher = Publisher(settings)
        stack.push_async_callback(publisher.aclose)
        counting = Counting()
        stack.callback(counting.close)
        submitter = Submitter(database, publisher, room=settings.max_queued, clock=time.time)
        stack.push_async_callback(submitter.close)
        presence = Presence(redis)
        presence.start()
        stack.push_async_callback(presence.close)
        prices = Prices(database, lambda: presence.hardware)
        prices.start()
        stack.push_async_callback(prices.close)
        yield Feeding(
            settings=settings,
            limits=Limits.of(settings),
            clock=time.time,
            catalog=live,
            asking=asking,
            counting=counting,
            database=database,
            redis=redis,
            submitter=submitter,
            presence=presence,
            prices=prices,
            blobs=await asyncio.to_thread(Blobs, settings.blobs_url),
        )
