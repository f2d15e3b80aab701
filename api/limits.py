"""What a tenant may, held against each job that comes in, before it is stored or sent.

Rate and open jobs are counted in Valkey, exactly, for all processes together; while that is away each process holds
the rate by itself. The quotas of a day go by what has ended (`tasks.store.usage`), read every few seconds, and by what
this process has let in since: what runs at once may go beyond them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tasks import keys
from tasks.admission import ADMIT, admit_arguments, admit_keys
from tasks.db import AsyncDatabase
from tasks.settings import Settings
from tasks.store import usage
from tasks.tenant_limits import Bucket, QuotaExceeded, TenantLimits, check_day, limits_of, too_fast, too_many

log = logging.getLogger(__name__)

DAY_FRESH_S = 2.0
"""How old what a day's jobs used may be."""

LEFT = 0.5
"""What part of its tenant's burst and open jobs a backfill leaves to calls."""


@dataclass(slots=True)
class _Day:
    """What a tenant has used on a day, as it was read at a time, with the items let in since."""

    at: float
    day: object
    items: int
    tokens: int


class Counted(Protocol):
    """What limits count of a job."""

    @property
    def id(self) -> UUID:
        """Its id."""

    @property
    def caller(self) -> str:
        """Whose it is."""

    @property
    def items(self) -> int:
        """How many items it has."""


class Limiter:
    """One for each process and event loop. `own` gives what a tenant's row says; nothing for one that has none."""

    def __init__(
        self,
        settings: Settings,
        redis: Redis,
        database: AsyncDatabase,
        own: Callable[[str], Mapping[str, Any]],
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._redis = redis
        self._database = database
        self._own = own
        self._clock = clock
        self._admit = redis.register_script(ADMIT)
        self._buckets: dict[str, Bucket] = {}
        self._days: dict[str, _Day] = {}

    async def admit(self, job: Counted, *, left: float = 0.0) -> None:
        """Let a job in that leaves such a part of what may come at once to others.

        Raises RateLimited, TooManyJobs or QuotaExceeded, or StoreUnavailable.
        """
        limits = limits_of(self._settings, self._own(job.caller))
        if not limits.any:
            return
        await self._check_day(limits, job.caller)
        if limits.requests_per_s or limits.open_jobs:
            await self._check_now(limits, job, left)
        self._count(job.caller, job.items)

    async def resumes_at(self, caller: str) -> datetime | None:
        """When a tenant may go on that has used what it may in a day; None if it has not. Raises StoreUnavailable."""
        try:
            await self._check_day(limits_of(self._settings, self._own(caller)), caller)
        except QuotaExceeded as error:
            return datetime.fromtimestamp(self._clock() + (error.retry_after_s or 0.0), UTC)
        return None

    async def release(self, id_: UUID, caller: str, unused: int = 0) -> None:
        """A job that was let in is not open any more; or it never came to be, and so many items are `unused`."""
        self._count(caller, -unused)
        if not limits_of(self._settings, self._own(caller)).open_jobs:
            return
        try:
            await self._redis.zrem(keys.open_jobs(caller), str(id_))
        except (RedisError, OSError) as error:  # the sweeper does it
            log.debug("job %s is still counted: %s", id_, type(error).__name__)

    def unused(self, caller: str, items: int) -> None:
        """So many items of what was let in are not used; the job itself is another request's to count."""
        self._count(caller, -items)

    async def _check_now(self, limits: TenantLimits, job: Counted, left: float) -> None:
        try:
            said = await self._admit(keys=admit_keys(job.caller), args=admit_arguments(limits, job.id, left))
        except (RedisError, OSError) as error:
            log.warning("limits are held by each process alone: %s", type(error).__name__)
            self._admit_here(limits, job.caller, left)
            return
        if said[0] == b"rate":
            raise too_fast(limits, float(said[1]))
        if said[0] == b"open":
            raise too_many(limits)

    def _count(self, caller: str, items: int) -> None:
        """Add items to what has been let in since the day was read."""
        if (used := self._days.get(caller)) is not None:
            used.items += items

    async def _check_day(self, limits: TenantLimits, caller: str) -> None:
        if not limits.items_per_day and not limits.tokens_per_day:
            return
        now = datetime.fromtimestamp(self._clock(), UTC)
        used = self._days.get(caller)
        if used is None or used.day != now.date() or not 0 <= now.timestamp() - used.at < DAY_FRESH_S:
            items, tokens = await self._database.run(usage.of_day, caller, now.date())
            used = self._days[caller] = _Day(now.timestamp(), now.date(), items, tokens)
        check_day(limits, used.items, used.tokens, now)

    def _admit_here(self, limits: TenantLimits, caller: str, left: float) -> None:
        if not limits.requests_per_s:
            return
        now = self._clock()
        bucket, wait_s = self._buckets.get(caller, Bucket(limits.burst, now)).taken(limits, now, left)
        self._buckets[caller] = bucket
        if wait_s:
            raise too_fast(limits, wait_s)
