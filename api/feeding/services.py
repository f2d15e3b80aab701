"""What the feeder works with: the parts of the API that admit jobs, and the store of files."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from redis.asyncio import Redis

from api.asking import Asking
from api.feeding.endings import Endings
from api.feeding.tenants import Tenants
from api.fetching import Fills
from api.limits import Limiter
from api.link import Link
from api.parts import parts
from api.presence import Presence
from catalog.live import LiveCatalog
from catalog.loader import Catalog
from tasks.blobs import Blobs
from tasks.contents import AsyncContents
from tasks.costs import Prices
from tasks.counting import Counting
from tasks.db import AsyncDatabase
from tasks.prepare import Limits
from tasks.settings import Settings
from tasks.submit import Submitter

log = logging.getLogger(__name__)

LARGE_AT_ONCE = 2
"""So many large lines are decoded at once, whatever parts and batches they are of."""


@dataclass(frozen=True, slots=True)
class Feeding:
    """The parts of one feeder; those of `api.services.Door` among them."""

    settings: Settings
    limits: Limits
    clock: Callable[[], float]
    catalog: LiveCatalog
    asking: Asking
    counting: Counting
    fetching: Fills
    database: AsyncDatabase
    redis: Redis
    submitter: Submitter
    presence: Presence
    prices: Prices
    blobs: Blobs
    contents: AsyncContents
    endings: Endings
    tenants: Tenants
    limiter: Limiter
    large: asyncio.Semaphore
    """Held while a large line is decoded, so that few are at once: they take many times their bytes."""

    def limits_of(self, caller: str) -> Limits:
        """What is let through: of all callers alike, since the jobs of lines go when their part is done."""
        return self.limits

    def now(self) -> datetime:
        """The time in UTC."""
        return datetime.fromtimestamp(self.clock(), UTC)


@asynccontextmanager
async def feeding(settings: Settings, catalog: Catalog | None = None) -> AsyncIterator[Feeding]:
    """Make the parts, and take them apart again."""
    async with AsyncExitStack() as stack:
        made = parts(settings, catalog, "roost-feeder", stack)
        presence, prices = made.watched(stack)
        endings = Endings()
        link = Link(settings.redis_url, changes=endings.heard, up=endings.up, down=endings.down)
        link.start()
        tenants = Tenants(made.database)
        stack.push_async_callback(link.close)
        yield Feeding(
            settings=settings,
            limits=Limits.of(settings),
            clock=time.time,
            catalog=made.catalog,
            asking=made.asking,
            counting=made.counting,
            fetching=made.fetching,
            database=made.database,
            redis=made.redis,
            submitter=made.submitter,
            presence=presence,
            prices=prices,
            blobs=made.blobs,
            contents=made.contents,
            endings=endings,
            tenants=tenants,
            limiter=Limiter(settings, made.redis, made.database, tenants.limits_of, time.time),
            large=asyncio.Semaphore(LARGE_AT_ONCE),
        )
