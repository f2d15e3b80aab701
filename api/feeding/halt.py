"""Why the work on a batch must end before its lines do, told to all who work on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from api.feeding.shaping import Stop


class Halt:
    """`stop` is None while work goes on. It is set once, and ends every sleep."""

    def __init__(self) -> None:
        self.stop: Stop | None = None
        self._event = asyncio.Event()
        self._cuts: set[asyncio.Timeout] = set()

    def set(self, stop: Stop) -> None:
        """No more lines are to be done."""
        if self.stop is None:
            self.stop = stop
            self._event.set()
            for cut in self._cuts:
                cut.reschedule(0)

    async def sleep(self, seconds: float, *others: asyncio.Event) -> None:
        """Sleep so long, or until the work must end or another of these happens."""
        waits = [asyncio.create_task(event.wait()) for event in (self._event, *others)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    @asynccontextmanager
    async def cutting(self) -> AsyncIterator[None]:
        """Give up what is awaited in here when work must end. Raises TimeoutError then."""
        async with asyncio.timeout(None if self.stop is None else 0) as cut:
            self._cuts.add(cut)
            try:
                yield
            finally:
                self._cuts.discard(cut)
