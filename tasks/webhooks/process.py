"""The sender in its Celery worker: a thread with an event loop, which a bell in Valkey or a task of Celery wakes."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tasks import keys
from tasks.blobs import Blobs
from tasks.contents import AsyncContents, Contents
from tasks.db import AsyncDatabase
from tasks.errors import TaskError
from tasks.settings import Settings
from tasks.store import deliveries
from tasks.webhooks.connect import Opener
from tasks.webhooks.guard import Guard
from tasks.webhooks.inlining import Results
from tasks.webhooks.sender import Rules, Sender

log = logging.getLogger(__name__)

CONNECTIONS = 4
"""To the database. What is written is small, and attempts take their time elsewhere."""

TIDY_S = 60.0
"""How often deliveries are forgotten that ended long ago, or whose endpoint is gone."""

BEAT_S = 2.0
BEAT_KEPT_S = 30
_PAGE = 1000
_PAUSE_S = 1.0


class SenderThread:
    """Start it, `wake` it from any thread, and `close` it to let what is under way end."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sender: Sender | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def wake(self) -> None:
        """Something may be due."""
        self._call("wake")

    def close(self) -> None:
        """Take nothing more, and wait for what is under way."""
        self._call("close")
        self._thread.join(self._settings.webhook_timeout_s + 5.0)

    def _call(self, name: str) -> None:
        with self._lock:
            if self._loop is not None and self._sender is not None:
                self._loop.call_soon_threadsafe(getattr(self._sender, name))

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            settings = self._settings
            database = AsyncDatabase(settings.database_url, CONNECTIONS, name="roost sender")
            stack.push_async_callback(database.close)
            redis = Redis.from_url(settings.redis_url, socket_timeout=30.0, socket_connect_timeout=2.0)
            stack.push_async_callback(redis.aclose)
            contents = AsyncContents(Contents(Blobs(settings.blobs_url), settings.blob_bytes))
            stack.callback(contents.close)
            opener = Opener(Guard.of(settings.webhook_allow, http=settings.webhook_http, settings="ROOST_WEBHOOK"))
            stack.push_async_callback(opener.close)
            counted = Counted(redis)
            sender = Sender(
                database,
                opener,
                Results(database, contents),
                Rules(settings.webhook_timeout_s, settings.webhook_in_flight, settings.public_url),
                heard=counted.note,
            )
            with self._lock:
                self._loop, self._sender = asyncio.get_running_loop(), sender
            tasks = [
                asyncio.create_task(listen(redis, sender.wake), name="bell"),
                asyncio.create_task(tidy(database, settings.webhook_retention_s), name="tidying"),
                asyncio.create_task(beat(redis, counted), name="beat"),
            ]
            try:
                await sender.run()
            finally:
                with self._lock:
                    self._loop = self._sender = None
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


class Counted:
    """What came of attempts since they were last told."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._counts: dict[str, int] = {}

    def note(self, what: str) -> None:
        """Count one."""
        self._counts[what] = self._counts.get(what, 0) + 1

    async def tell(self) -> None:
        """Add them to those of all senders."""
        counts, self._counts = self._counts, {}
        pipe = self._redis.pipeline(transaction=False)
        for what, count in counts.items():
            pipe.hincrby(keys.ATTEMPTS, what, count)
        pipe.set(keys.sender(socket.gethostname()), repr(time.time()), ex=BEAT_KEPT_S)
        await pipe.execute()


async def beat(redis: Redis, counted: Counted) -> None:
    """Say that this process lives, and what it did, until cancelled."""
    while True:
        try:
            await counted.tell()
        except (RedisError, OSError) as error:
            log.debug("the beat was not heard: %s", type(error).__name__)
        await asyncio.sleep(BEAT_S)


async def listen(redis: Redis, wake: Callable[[], None]) -> None:
    """Wake at each ring of the bell, until cancelled. What is not heard is found by looking."""
    while True:
        try:
            async with redis.pubsub(ignore_subscribe_messages=True) as bell:
                await bell.subscribe(keys.DELIVERIES)
                wake()
                while True:
                    if await bell.get_message(timeout=10.0) is not None:
                        wake()
        except (RedisError, OSError) as error:
            log.warning("the bell of webhooks is not heard: %s", type(error).__name__)
        await asyncio.sleep(_PAUSE_S)


async def tidy(database: AsyncDatabase, retention_s: int) -> None:
    """Forget deliveries that ended long ago, and those of endpoints that are disabled or deleted, until cancelled."""
    while True:
        with suppress(TaskError):
            now = datetime.now(UTC)
            while await database.run(deliveries.drop, now, _PAGE) == _PAGE:
                pass
            while await database.run(deliveries.forget, now - timedelta(seconds=retention_s), _PAGE) == _PAGE:
                pass
            while await database.run(deliveries.remove, _PAGE):
                pass
        await asyncio.sleep(TIDY_S)
