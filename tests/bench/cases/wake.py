"""How soon a waiter knows after the commit that ended its job: long poll and event stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import UUID

from tests.bench.case import Case, Found, Measure, Pace, Stack, Unreliable
from tests.bench.client import Connection, ask_json, request
from tests.bench.figures import Reading, at_most, latency
from tests.bench.jobs import submission
from tests.bench.models import SLOW

Receive = Callable[[Connection, UUID], Awaitable[float]]
WAITERS = (1, 16)
PATIENCE_S = 30


@asynccontextmanager
async def opened(stack: Stack, pace: Pace) -> AsyncIterator[Measure]:
    """The slow model is loaded first, and the server must keep commit times."""
    if not await stack.rows.commits_kept():
        raise Unreliable("the server keeps no commit times, so there is nothing to measure from")
    await _waited(stack, long_poll, 1, 1)

    async def measure() -> Found:
        found = Found()
        for name, receive in (("long poll", long_poll), ("event stream", event_stream)):
            for waiters in WAITERS:
                each = max(8, (60 if pace.quick else 200) // waiters)
                since = await _waited(stack, receive, waiters, each)
                found.add(*latency(f"{name}, {waiters} waiting", since, p99=at_most(10)))
                found.add(Reading(f"{name}, {waiters} waiting: measured", len(since), "wakes"))
        return found

    yield measure


async def _waited(stack: Stack, receive: Receive, waiters: int, each: int) -> list[float]:
    """Milliseconds from commit to the waiter's last byte, for waiters that were there before the commit."""
    began: dict[UUID, float] = {}
    heard: dict[UUID, float] = {}

    async def waiter() -> None:
        connection = await Connection.open(stack.address)
        try:
            for _ in range(each):
                job = UUID((await ask_json(connection, submission(SLOW, ["a text that takes a while"])))["id"])
                began[job] = time.time()
                heard[job] = await receive(connection, job)
        finally:
            await connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(waiters):
            group.create_task(waiter())
    rows = await stack.rows.ended(list(heard), commits=True)
    since = [
        (heard[job] - row.committed) * 1000
        for job, row in rows.items()
        if row.committed is not None and row.committed > began[job]
    ]
    if len(since) < len(heard) // 2:
        raise Unreliable(f"only {len(since)} of {len(heard)} waiters were there before the commit")
    return since


async def long_poll(connection: Connection, job: UUID) -> float:
    """When the whole answer of a long poll had arrived."""
    answer = await connection.ask(request("GET", f"/v1/jobs/{job}?wait={PATIENCE_S}"))
    if answer.json()["status"] != "succeeded":
        raise Unreliable(f"a long poll ended with {answer.json()['status']}")
    return answer.at


async def event_stream(connection: Connection, job: UUID) -> float:
    """When the event that ends the job had arrived; then reads on until the stream ends."""
    pieces = await connection.pieces(request("GET", f"/v1/jobs/{job}/events"))
    at = 0.0
    async with asyncio.timeout(PATIENCE_S):
        while (piece := await pieces.get()) is not None:
            if b"event: succeeded" in piece[1]:
                at = piece[0]
    if not at:
        raise Unreliable("an event stream ended without the end of its job")
    return at


CASE = Case(
    name="wake",
    title="from the commit that ends a job to its waiter's last byte",
    opened=opened,
    notes=(
        "commit time is PostgreSQL's own (track_commit_timestamp), taken before the log is flushed: the flush counts",
        "client and server read the same clock",
        "the job's batch takes 50 ms, so that the waiter is there first; waiters that came too late are left out",
    ),
)
