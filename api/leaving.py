"""Noticing that a caller has left while it waits, so that its place is free at once."""

from __future__ import annotations

import asyncio
from types import TracebackType

from starlette.types import Receive

from api.waiting import Nudge, Waiter

GRACE_S = 0.1
"""Short waits end before anybody needs to look whether the caller is still there."""


class Leaving:
    """Inside the block, after a grace, the waiter hears GONE when the connection closes. Read the body first."""

    def __init__(self, receive: Receive | None, waiter: Waiter) -> None:
        self._receive = receive
        self._waiter = waiter
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        if self._receive is not None:
            self._timer = asyncio.get_running_loop().call_later(GRACE_S, self._start, self._receive)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self, receive: Receive) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch(receive))

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._waiter.notify(Nudge.GONE)
