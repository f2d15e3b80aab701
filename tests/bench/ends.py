"""Sees jobs end, on the channel that wakes the waiters of the API: one message per batch, published after its commit.

The cheapest way to know that thousands of jobs have ended. Whoever counts checks the rows afterwards as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from types import TracebackType
from typing import Self
from uuid import UUID

import redis.asyncio

from tasks import keys
from tasks.jobs import FINAL, State
from tasks.notices import unpack_changes


class Ends:
    """Listens from the moment it is entered until it is left; `at` holds the wall clock of each end."""

    def __init__(self, redis_url: str) -> None:
        self.at: dict[UUID, float] = {}
        self._client = redis.asyncio.Redis.from_url(redis_url, socket_timeout=None)
        self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._pubsub.subscribe(keys.CHANGES)
        self._task = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._pubsub.aclose()  # type: ignore[no-untyped-call]  # redis leaves it untyped
        await self._client.aclose()

    async def all(self, ids: Collection[UUID], timeout_s: float) -> float:
        """Wait until all of these have ended; gives the wall clock of the last end. Raises TimeoutError."""
        left = set(ids)
        async with asyncio.timeout(timeout_s):
            while left:
                self._news.clear()
                left.difference_update(self.at)
                if left:
                    await self._news.wait()
        return max(self.at[job] for job in ids)

    async def _listen(self) -> None:
        async for message in self._pubsub.listen():
            now = time.time()
            for change in unpack_changes(message["data"]):
                if State(change.state) in FINAL:
                    self.at[change.id] = now
            self._news.set()
