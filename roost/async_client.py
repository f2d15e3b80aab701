"""The client for asyncio: the calls of `Client`, awaited. `client.py` has both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

from roost import asking, batches, document_backfills, flows
from roost.awaiting import AsyncDriver
from roost.backfill import Backfill, Order, Part, Progress, plan_of
from roost.calls import Calls, JobCalls
from roost.events import Event
from roost.job_info import JobInfo
from roost.results import Item, Result
from roost.steps import Patience, Steps
from roost.transport import Address, now


class AsyncJob(JobCalls[Coroutine[Any, Any, JobInfo], Coroutine[Any, Any, Result]]):
    """A job of a server. `info` is what was last known of it."""

    def __init__(self, info: JobInfo, driver: AsyncDriver, patience: Patience) -> None:
        super().__init__(info, patience)
        self._driver = driver

    async def events(self) -> AsyncIterator[Event]:
        """As `Job.events`."""
        async with aclosing(self._driver.give(flows.follow(self.id, self._patience))) as events:
            async for event in events:
                self.info = event.job or self.info
                yield event

    def _run(self, steps: Steps[Any]) -> Any:
        return self._driver.run(steps)


class AsyncClient(
    Calls[
        Coroutine[Any, Any, Result],
        Coroutine[Any, Any, AsyncJob],
        Coroutine[Any, Any, dict[str, Any]],
        Coroutine[Any, Any, list[dict[str, Any]]],
        Coroutine[Any, Any, str],
    ]
):
    """The calls of a server, for tasks of one event loop; see `Calls` for its arguments."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._driver.close()

    async def stream(self, model: str, prompt: Any, *, key: str | None = None, **fields: Any) -> AsyncIterator[str]:
        """As `Client.stream`. Close the iterator (`contextlib.aclosing`) to leave it at once."""
        job = asking.streamed(model, prompt, fields, key)
        async with aclosing(self._driver.give(flows.stream(job, self._patience))) as texts:
            async for text in texts:
                yield text

    async def jobs(self, *, most: int | None = None, **filters: str | None) -> AsyncIterator[AsyncJob]:
        """As `Client.jobs`."""
        async with aclosing(self._driver.give(flows.pages(filters, most, self._patience))) as infos:
            async for info in infos:
                yield AsyncJob(info, self._driver, self._patience)

    async def content(self, file_id: str) -> AsyncIterator[bytes]:
        """As `Client.content`."""
        async with aclosing(self._driver.give(document_backfills.content(file_id, self._patience))) as pieces:
            async for piece in pieces:
                yield piece

    async def lines(self, file_id: str) -> AsyncIterator[dict[str, Any]]:
        """As `Client.lines`."""
        async with aclosing(self._driver.give(batches.lines(file_id, self._patience))) as found:
            async for line in found:
                yield line

    def backfill(
        self,
        verb: str,
        model: str,
        items: Iterable[Any] | AsyncIterable[Any],
        *,
        run: str | None = None,
        batch: int = 256,
        in_flight: int = 8,
        ordered: bool = True,
        start: int = 0,
        progress: Callable[[Progress], object] | None = None,
        **fields: Any,
    ) -> AsyncIterator[Item]:
        """As `Client.backfill`; inputs may come from an asynchronous iterable as well."""
        plan = plan_of(verb, model, fields, run, batch, in_flight, ordered, start, self._patience)
        return self._work(plan, items, Order.of(plan, items, progress))

    async def _work(
        self, plan: Backfill, items: Iterable[Any] | AsyncIterable[Any], order: Order
    ) -> AsyncIterator[Item]:
        tasks: dict[asyncio.Task[list[Item]], int] = {}
        try:
            async with aclosing(_parts(plan, items)) as parts:
                part = await anext(parts, None)
                while part is not None or tasks:
                    while part is not None and order.may_start(len(tasks)):
                        task = asyncio.create_task(self._driver.run(plan.steps(part, now())))
                        tasks[task] = part.number
                        part = await anext(parts, None)
                    ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in ended:
                        for item in order.took(tasks.pop(task), task.result()):
                            yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _connect(self, where: Address, connections: int) -> None:
        self._driver = AsyncDriver(where, connections)

    def _run(self, steps: Steps[Any]) -> Any:
        return self._driver.run(steps)

    async def _handle(self, steps: Steps[JobInfo]) -> AsyncJob:
        return AsyncJob(await self._driver.run(steps), self._driver, self._patience)


async def _parts(plan: Backfill, items: Iterable[Any] | AsyncIterable[Any]) -> AsyncGenerator[Part]:
    if not isinstance(items, AsyncIterable):
        for part in plan.parts(items):
            yield part
        return
    cutter = plan.cutter()
    async for item in items:
        if (whole := cutter.add(item)) is not None:
            yield whole
    if (last := cutter.rest()) is not None:
        yield last
