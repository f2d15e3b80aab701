"""Single-item jobs that nobody waits for, from the first submission until the last result is stored."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice

from tests.bench.case import Case, Found, Measure, Pace, Stack, Unreliable
from tests.bench.ends import Ends
from tests.bench.figures import Reading, at_least, latency
from tests.bench.jobs import ids_of, post_all, weightless

CLIENTS = 64
PATIENCE_S = 120


@asynccontextmanager
async def opened(stack: Stack, pace: Pace) -> AsyncIterator[Measure]:
    """A few hundred jobs first, so that every pool is open."""
    await _run(stack, 300, Found(), "warm-up")

    async def measure() -> Found:
        found = Found()
        await _run(stack, pace.jobs, found, f"{CLIENTS} submitters")
        return found

    yield measure


async def _run(stack: Stack, jobs: int, found: Found, load: str) -> None:
    calls = list(islice(weightless(), jobs))
    meter = stack.meter()
    async with Ends(stack.redis_url) as ends:
        meter.opened()
        began = time.time()
        answers = await post_all(stack.address, calls, CLIENTS)
        accepted = time.time()
        ids = ids_of(answers)
        last = await ends.all(ids, PATIENCE_S)
        meter.closed()
    rows = await stack.rows.ended(ids)
    done = [row for row in rows.values() if row.state == "succeeded" and row.finished is not None]
    if len(done) != jobs:
        raise Unreliable(f"{jobs} jobs were accepted, but {len(done)} succeeded")
    found.add(Reading("accepted until all have ended", jobs / (last - began), "jobs/s", at_least(1000)))
    found.add(Reading("accepted meanwhile", jobs / (accepted - began), "jobs/s"))
    stays = [(row.finished - row.created) * 1000 for row in done if row.finished is not None]
    found.add(*latency("from acceptance to result", stays))
    found.spent(load, meter.spent, jobs)


CASE = Case(
    name="jobs",
    title="single-item jobs through the whole path, nobody waits, weightless",
    opened=opened,
    notes=("ends are seen on the waiters' channel, one message per committed batch; then every row is checked",),
)
