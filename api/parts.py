"""The parts that admit, store and send jobs, for any process that does: an API process, or a feeder."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

from redis.asyncio import Redis

from api.asking import Asking
from api.fetching import Fetching
from api.presence import Presence
from catalog.live import LiveCatalog
from catalog.loader import Catalog
from tasks.blobs import Blobs
from tasks.catalog import live_catalog
from tasks.contents import AsyncContents, Contents
from tasks.costs import Prices
from tasks.counting import Counting
from tasks.db import AsyncDatabase
from tasks.dispatch import Publisher
from tasks.settings import Settings
from tasks.submit import Submitter


@dataclass(frozen=True, slots=True)
class Parts:
    """What is there before anything listens."""

    catalog: LiveCatalog
    asking: Asking
    database: AsyncDatabase
    redis: Redis
    publisher: Publisher
    counting: Counting
    fetching: Fetching
    submitter: Submitter
    blobs: Blobs
    contents: AsyncContents

    def watched(self, stack: AsyncExitStack) -> tuple[Presence, Prices]:
        """Look from now on which workers live, and what models cost on them."""
        presence = Presence(self.redis)
        presence.start()
        stack.push_async_callback(presence.close)
        prices = Prices(self.database, lambda: presence.hardware)
        prices.start()
        stack.push_async_callback(prices.close)
        return presence, prices


def parts(settings: Settings, catalog: Catalog | None, name: str, stack: AsyncExitStack) -> Parts:
    """Make them; `stack` takes them apart again, the last one first. `name` is that of the database's connections."""
    live = live_catalog(settings) if catalog is None else LiveCatalog.fixed(catalog)
    stack.callback(live.close)
    if catalog is None and settings.catalog_poll_s:
        live.watch(settings.catalog_poll_s, lambda change: None)
    asking = Asking(live)
    stack.callback(asking.close)
    database = AsyncDatabase(settings.database_url, settings.pool_size, name=name)
    stack.push_async_callback(database.close)
    redis = Redis.from_url(settings.redis_url, socket_timeout=2.0, socket_connect_timeout=2.0)
    stack.push_async_callback(redis.aclose)
    publisher = Publisher(settings)
    stack.push_async_callback(publisher.aclose)
    counting = Counting()
    stack.callback(counting.close)
    fetching = Fetching(settings)
    stack.push_async_callback(fetching.close)
    blobs = Blobs(settings.blobs_url)
    contents = AsyncContents(Contents(blobs, settings.blob_bytes))
    stack.callback(contents.close)
    submitter = Submitter(database, publisher, room=settings.max_queued, clock=time.time, contents=contents)
    stack.push_async_callback(submitter.close)
    return Parts(live, asking, database, redis, publisher, counting, fetching, submitter, blobs, contents)
