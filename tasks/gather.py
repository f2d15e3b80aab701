"""Many callers, one call: what comes in while a group is on its way goes out as the next group.

Nothing waits when nothing is under way, and under load the groups grow by themselves, so there is no window to choose.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from tasks.errors import Overloaded, TaskError

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


class Gather(Generic[T, R]):
    """Gives `work` all that has gathered, one group at a time, and each caller its own result.

    A group holds at most `most` things and about `most_bytes` by `size`, but always one. `room` bounds what may wait.
    A TaskError is for the whole group: nothing can be had just now. Any other error may be the fault of one thing in
    it, so the group is halved until that one fails alone. `work` must therefore be safe to repeat.
    """

    def __init__(
        self,
        work: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        most: int,
        most_bytes: int,
        size: Callable[[T], int],
        room: int,
    ) -> None:
        self._work = work
        self._most = most
        self._most_bytes = most_bytes
        self._size = size
        self._room = room
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, thing: T) -> asyncio.Future[R]:
        """Hand over one thing; await the future for its result. Raises Overloaded when there is no room."""
        if len(self._waiting) >= self._room:
            raise Overloaded
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((thing, future))
        if self._task is None:
            self._task = loop.create_task(self._run())
        return future

    async def drain(self) -> None:
        """Return when all that was handed over has its result."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._do(self._group())
        finally:
            self._task = None

    def _group(self) -> list[tuple[T, asyncio.Future[R]]]:
        group: list[tuple[T, asyncio.Future[R]]] = []
        size = 0
        while self._waiting and len(group) < self._most:
            thing, future = self._waiting[0]
            size += self._size(thing)
            if group and size > self._most_bytes:
                break
            self._waiting.popleft()
            group.append((thing, future))
        return group

    async def _do(self, group: Sequence[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            results = await self._work([thing for thing, _ in group])
        except TaskError as error:
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
        except Exception as error:
            if len(group) > 1:
                half = len(group) // 2
                await self._do(group[:half])
                await self._do(group[half:])
            elif not group[0][1].done():
                group[0][1].set_exception(error)
            else:
                log.exception("a caller that left would have been told")
        else:
            for (_, future), result in zip(group, results, strict=True):
                if not future.done():
                    future.set_result(result)
