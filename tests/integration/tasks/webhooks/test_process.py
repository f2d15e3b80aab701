"""The sender's thread: who wakes it, what it says of itself, and how it ends."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from redis.asyncio import Redis

from tasks import keys
from tasks.db import Database
from tasks.prepare import job_id
from tasks.settings import Settings
from tasks.store import deliveries, endpoints, outbox
from tasks.store.deliveries import Filters
from tasks.webhooks.bell import ring
from tasks.webhooks.process import SenderThread
from tasks.webhooks.schedule import State
from tasks.webhooks.sender import LOOK_S
from tests.integration.tasks.webhooks.conftest import PATIENCE_S, Receiver


@pytest.fixture
async def valkey(broker_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(broker_url.replace("roost://", "redis://")) as client:
        yield client


async def test_a_bell_and_a_call_of_its_worker_have_it_send_at_once(
    database: Database, database_url: str, broker_url: str, valkey: Redis, receiver: Receiver, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    database.run(
        endpoints.create,
        id_=job_id(now.timestamp()),
        caller="default",
        url=receiver.url + "/",
        events=["*"],
        secret=b"s" * 32,
        now=now,
    )
    settings = Settings(
        database_url=database_url, broker_url=broker_url, blobs_url=str(tmp_path), webhook_allow="127.0.0.1"
    )
    sender = SenderThread(settings)
    sender.wake()  # before it runs it is nothing to it
    sender.start()
    try:
        await until(lambda: _listens(valkey))
        for number in range(4):
            began = time.monotonic()
            database.run(outbox.tell, "default", "batch.failed", UUID(int=number), {})
            if number % 2:
                sender.wake()
            else:
                await ring(valkey)
            await receiver.until(number + 1)
            assert time.monotonic() - began < LOOK_S / 4
            await until(lambda: _sent(database))
        await until(lambda: _counted(valkey, 4))
        assert time.time() - float(await valkey.get(keys.sender(socket.gethostname())) or 0) < PATIENCE_S
    finally:
        began = time.monotonic()
        await asyncio.to_thread(sender.close)
    assert time.monotonic() - began < LOOK_S / 2


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - neither rows nor Valkey's counts send a signal
            await asyncio.sleep(0.02)


async def _listens(valkey: Redis) -> bool:
    return any(count for _, count in await valkey.pubsub_numsub(keys.DELIVERIES))


async def _sent(database: Database) -> bool:
    return not database.run(deliveries.page, "default", Filters(state=State.PENDING), after=None, limit=1)


async def _counted(valkey: Redis, attempts: int) -> bool:
    counts = await valkey.hgetall(keys.ATTEMPTS)
    return counts == {b"delivered": str(attempts).encode()}
