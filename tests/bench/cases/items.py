"""Items a second through API, Celery, worker and Postgres when a request carries many."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice

from tests.bench.case import Case, Found, Measure, Pace, Stack, Unreliable, checked
from tests.bench.ends import Ends
from tests.bench.figures import Reading, at_least, latency
from tests.bench.jobs import JSON, MSGPACK, WAIT_S, ids_of, post_all, weightless
from tests.bench.load import closed_loop

GOAL = at_least(5000)
SIZES = ((32, 16), (256, 8))
"""Items a request, and how many requests are under way."""


@asynccontextmanager
async def opened(stack: Stack, pace: Pace) -> AsyncIterator[Measure]:
    """Nothing beside the stack."""

    async def measure() -> Found:
        found = Found()
        for items, clients in SIZES:
            await _submitted(stack, pace, found, items, clients)
            await _waited(stack, pace, found, items, clients, MSGPACK)
            await _waited(stack, pace, found, items, clients, JSON)
        return found

    yield measure


async def _waited(stack: Stack, pace: Pace, found: Found, items: int, clients: int, accept: str) -> None:
    """Callers wait, and take every vector home."""
    meter = stack.meter()
    calls = weightless(items, WAIT_S, accept, kinds=8)
    window = checked(await closed_loop(stack.address, calls, clients, pace.seconds, pace.warmup, probe=meter))
    load = f"{items} a request, waited for, {accept.partition('/')[2]}"
    found.add(Reading(load, window.per_second(window.items), "items/s", GOAL))
    found.add(*latency(load, window.latencies_ms))
    found.spent(load, meter.spent, window.answers)


async def _submitted(stack: Stack, pace: Pace, found: Found, items: int, clients: int) -> None:
    """Callers leave when they have an id; the time runs until the last result is stored."""
    jobs = max(40, pace.jobs * 8 // items)
    calls = list(islice(weightless(items, kinds=8), jobs))
    meter = stack.meter()
    async with Ends(stack.redis_url) as ends:
        meter.opened()
        began = time.time()
        ids = ids_of(await post_all(stack.address, calls, clients))
        last = await ends.all(ids, 120)
        meter.closed()
    rows = await stack.rows.ended(ids)
    if [row.state for row in rows.values()] != ["succeeded"] * jobs:
        raise Unreliable(f"{jobs} jobs were accepted, but not as many succeeded")
    load = f"{items} a request, not waited for"
    found.add(Reading(load, jobs * items / (last - began), "items/s", GOAL))
    found.spent(load, meter.spent, jobs)


CASE = Case(
    name="items",
    title="items through API, Celery, worker and Postgres, weightless, each item a stored vector of 384 floats",
    opened=opened,
    notes=(
        "waited for: the result goes back in the answer, as msgpack (1.5 KB an item) or as JSON (about 8 KB an item)",
        "not waited for: from the first submission until the last result is committed; every row is checked after",
    ),
)
