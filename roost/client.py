"""A client of Roost: `Client`, and `AsyncClient` with the same calls for asyncio.

    with Client() as roost:
        vectors = roost.encode("sentence-transformers/all-MiniLM-L6-v2", ["a text", "another"]).dense

Calls that wait go on waiting when the server is restarted; what they send again is safe to send twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Self

from roost import asking, batches, document_backfills, flows
from roost.async_client import AsyncClient, AsyncJob
from roost.backfill import Backfill, Order, Progress, plan_of
from roost.blocking import Driver
from roost.calls import Calls, JobCalls
from roost.crew import Crew
from roost.events import Event
from roost.job_info import JobInfo
from roost.results import Item, Result
from roost.steps import Patience, Steps
from roost.transport import Address, now

__all__ = ["AsyncClient", "AsyncJob", "Client", "Job"]


class Job(JobCalls[JobInfo, Result]):
    """A job of a server. `info` is what was last known of it."""

    def __init__(self, info: JobInfo, driver: Driver, patience: Patience) -> None:
        super().__init__(info, patience)
        self._driver = driver

    def events(self) -> Iterator[Event]:
        """Its states as it comes to them, and the texts of a stream, until its end; goes on after lost connections."""
        for event in self._driver.give(flows.follow(self.id, self._patience)):
            self.info = event.job or self.info
            yield event

    def _run(self, steps: Steps[Any]) -> Any:
        return self._driver.run(steps)


class Client(Calls[Result, Job, dict[str, Any], list[dict[str, Any]], str]):
    """The calls of a server, each waiting for its answer. Threads may share one; see `Calls` for its arguments."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._driver.close()

    def stream(self, model: str, prompt: Any, *, key: str | None = None, **fields: Any) -> Iterator[str]:
        """The text of one prompt in pieces, as it is generated. Who leaves before its end cancels the job.

        Raises JobFailed, RequestRefused or ConnectionFailed.
        """
        job = asking.streamed(model, prompt, fields, key)
        return self._driver.give(flows.stream(job, self._patience))

    def jobs(self, *, most: int | None = None, **filters: str | None) -> Iterator[Job]:
        """The jobs that match every filter newest first; at most `most`. See GET /v1/jobs for them."""
        for info in self._driver.give(flows.pages(filters, most, self._patience)):
            yield Job(info, self._driver, self._patience)

    def content(self, file_id: str) -> Iterator[bytes]:
        """The content of a file of the server, piece by piece. Raises NotFound or ConnectionFailed."""
        yield from self._driver.give(document_backfills.content(file_id, self._patience))

    def lines(self, file_id: str) -> Iterator[dict[str, Any]]:
        """The lines of a JSONL file of the server, such as the output of a batch. Raises as `content`."""
        yield from self._driver.give(batches.lines(file_id, self._patience))

    def backfill(
        self,
        verb: str,
        model: str,
        items: Iterable[Any],
        *,
        run: str | None = None,
        batch: int = 256,
        in_flight: int = 8,
        ordered: bool = True,
        start: int = 0,
        progress: Callable[[Progress], object] | None = None,
        **fields: Any,
    ) -> Iterator[Item]:
        """The results of any number of inputs, in their order or as they come; failures are items with an `error`.

        Inputs are taken as there is room: `batch` of them make a job of the bulk lane, of which `in_flight` are under
        way. A run of the same name, inputs, batch and options goes on where it stopped, for as long as the server keeps
        its results; `start` passes over inputs whose results you have. `progress` is called after each part. Raises
        RoostError for what would meet every input, such as an unknown option, another run of this name or a server
        that stays away.
        """
        plan = plan_of(verb, model, fields, run, batch, in_flight, ordered, start, self._patience)
        return self._work(plan, items, Order.of(plan, items, progress))

    def _work(self, plan: Backfill, items: Iterable[Any], order: Order) -> Iterator[Item]:
        parts = plan.parts(items)
        with Crew[list[Item]](plan.in_flight) as crew:
            part = next(parts, None)
            while part is not None or crew.running:
                while part is not None and order.may_start(crew.running):
                    crew.start(part.number, partial(self._run, plan.steps(part, now())))
                    part = next(parts, None)
                yield from order.took(*crew.next())

    def _connect(self, where: Address, connections: int) -> None:
        self._driver = Driver(where, connections)

    def _run(self, steps: Steps[Any]) -> Any:
        return self._driver.run(steps)

    def _handle(self, steps: Steps[JobInfo]) -> Job:
        return Job(self._driver.run(steps), self._driver, self._patience)
