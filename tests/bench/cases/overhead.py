"""What the way through the service adds to the engine: one client, one weightless item, durable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.bench.case import Case, Found, Measure, Pace, Stack, checked
from tests.bench.figures import Reading, at_most, latency, percentile
from tests.bench.jobs import WAIT_S, weightless
from tests.bench.load import closed_loop
from tests.bench.peers import Peer


@asynccontextmanager
async def opened(stack: Stack, pace: Pace) -> AsyncIterator[Measure]:
    """The engine runs in a process of its own, with nothing but the engine in it."""
    engine = await Peer.start("tests.bench.inprocess")

    async def measure() -> Found:
        found = Found()
        direct: list[float] = (await engine.ask(calls=pace.jobs // 4))["latencies_ms"]
        meter = stack.meter()
        calls = weightless(wait_s=WAIT_S)
        window = checked(await closed_loop(stack.address, calls, 1, pace.seconds, pace.warmup, probe=meter))
        served = window.latencies_ms
        found.add(*latency("engine in process", direct), *latency("over HTTP", served))
        for share, bound in ((50, 8.0), (99, 25.0)):
            added = percentile(served, share) - percentile(direct, share)
            found.add(Reading(f"added by the service p{share}", added, "ms", at_most(bound)))
        found.spent("1 client", meter.spent, window.answers)
        return found

    try:
        yield measure
    finally:
        await engine.stop()


CASE = Case(
    name="overhead",
    title="time from HTTP to result over calling the engine in process, one client, weightless, stored",
    opened=opened,
    notes=("the answer is sent after the whole job, with its result, has been committed",),
)
