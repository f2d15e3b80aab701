"""Batches held to the limits of their tenants, over real Postgres and Valkey, with a consumer that ends jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from api.compat.openai.batch_objects import batch_object
from api.feeding import jobs, tenants
from api.feeding.feeder import Feeder
from api.feeding.services import Feeding, feeding
from catalog.loader import Catalog
from catalog.terms import Lane, Verb
from tasks import keys
from tasks.batches import Batch, Status
from tasks.messages import Submission
from tasks.prepare import CALLER
from tasks.settings import Settings
from tasks.store import api_keys
from tasks.store import batches as store
from tasks.tenant_limits import RateLimited, TooManyJobs
from tests.integration.api.test_feeding import Consumer, embed, ended, new_batch, reached, settings

__all__ = ["settings"]


@asynccontextmanager
async def limited(settings: Settings, catalog: Catalog, **limits: float) -> AsyncIterator[Feeding]:
    """A feeder that works, of a server whose tenants may only so much; its parts."""
    async with feeding(settings.model_copy(update=limits), catalog) as it:
        feeder = Feeder(it, "one")
        task = asyncio.create_task(feeder.run())
        try:
            yield it
        finally:
            feeder.close()
            await asyncio.gather(task, return_exceptions=True)


def a_call(batch: Batch) -> Submission:
    """What the limits see of a call of the same tenant."""
    return Submission(
        id=uuid4(),
        caller=batch.caller,
        verb=Verb.ENCODE,
        model="org/plain",
        revision=None,
        lane=Lane.INTERACTIVE,
        bucket="xs",
        priority=5,
        options={},
        inputs=b"",
        lengths=[1],
        costs=[1.0],
        faults={},
        created=0.0,
        deadline=None,
        retention_s=60,
    )


async def test_a_rate_holds_a_batch_back_and_half_of_the_burst_is_left_to_calls(
    settings: Settings, catalog: Catalog, consumer: Consumer
) -> None:
    async with limited(settings, catalog, tenant_requests_per_s=0.001, tenant_burst=6) as it:
        batch = await new_batch(it, [embed(n) for n in range(10)])
        batch = await reached(it, batch, lambda found: found.completed == 3)
        for _ in range(3):
            await it.limiter.admit(a_call(batch))
        with pytest.raises(RateLimited):
            await it.limiter.admit(a_call(batch))
        await it.database.run(store.cancel, batch.id, CALLER)

        batch = await ended(it, batch)

    assert (batch.status, batch.completed, batch.failed) == (Status.CANCELLED, 3, 7)
    assert len(consumer.taken) == 3


async def test_a_batch_waits_for_the_day_when_its_quota_is_used_says_so_and_goes_on_when_it_may(
    settings: Settings, catalog: Catalog, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LATER_S", 0.05)
    monkeypatch.setattr(tenants, "FRESH_S", 0.0)
    async with limited(settings, catalog, tenant_items_per_day=3) as it:
        batch = await new_batch(it, [embed(n) for n in range(10)])
        batch = await reached(it, batch, lambda found: found.completed == 3)
        now = datetime.now(UTC)
        resumes_at = await it.limiter.resumes_at(CALLER)
        assert resumes_at is not None
        assert 0 < (resumes_at - now).total_seconds() <= 86_400
        shown = batch_object(batch, now + timedelta(hours=1), resumes_at)
        assert (shown["status"], shown["paused_until"], shown["stalled"]) == (
            "in_progress",
            int(resumes_at.timestamp()),
            False,
        )
        assert batch_object(batch, now + timedelta(hours=1))["stalled"]

        await it.database.run(more_for, CALLER)
        batch = await ended(it, batch)

        assert (batch.status, batch.completed) == (Status.COMPLETED, 10)
        assert batch_object(batch, now, resumes_at)["paused_until"] is None


async def test_open_jobs_hold_a_batch_back_and_half_of_them_are_left_to_calls(
    settings: Settings, catalog: Catalog, idle_consumer: Consumer, broker: Any
) -> None:
    async with limited(settings, catalog, tenant_open_jobs=6) as it:
        batch = await new_batch(it, [embed(n) for n in range(10)])
        await reached(it, batch, lambda _: broker.zcard(keys.open_jobs(CALLER)) == 3)
        for _ in range(3):
            await it.limiter.admit(a_call(batch))
        with pytest.raises(TooManyJobs):
            await it.limiter.admit(a_call(batch))
        idle_consumer.release()
        broker.delete(keys.open_jobs(CALLER))

        batch = await ended(it, batch)

    assert (batch.status, batch.completed) == (Status.COMPLETED, 10)


def more_for(conn: Any, name: str) -> None:
    conn.exec_driver_sql("INSERT INTO tenants (name, created_at) VALUES (%(name)s, now())", {"name": name})
    api_keys.limit(conn, name, {"items_per_day": 100}, None)
