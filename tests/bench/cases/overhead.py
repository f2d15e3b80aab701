"""What the way through the service adds to the engine: one client, one weightless item, durable."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.bench.case import Case, Found, Measure, Pace, Stack, checked
from tests.bench.client import Connection, ask_json
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
        found.add(*await _parts(stack, pace.jobs // 20))
        return found

    try:
        yield measure
    finally:
        await engine.stop()


async def _parts(stack: Stack, count: int) -> list[Reading]:
    """Where the time of one request goes: the job's own timings, and the rest as the client sees it."""
    calls = weightless(wait_s=WAIT_S)
    spent: dict[str, list[float]] = {}
    connection = await Connection.open(stack.address)
    try:
        for _ in range(count):
            began = time.perf_counter()
            job = await ask_json(connection, next(calls).data, (200,))
            whole = (time.perf_counter() - began) * 1000
            timings: dict[str, float] = job["timings"]
            for part, milliseconds in timings.items():
                spent.setdefault(part.removesuffix("_ms"), []).append(milliseconds)
            spent.setdefault("rest", []).append(whole - timings["total_ms"])
    finally:
        await connection.close()
    return [Reading(f"of it, {_PARTS[part]}, p50", percentile(spent[part], 50), "ms") for part in _PARTS]


_PARTS = {
    "admit": "admission until the message is sent",
    "queue": "sent until the engine child has it",
    "batch_wait": "engine, without the device",
    "device": "device",
    "commit": "engine until the commit begins",
    "rest": "parsing, commit, wake and answer",
}

CASE = Case(
    name="overhead",
    title="time from HTTP to result over calling the engine in process, one client, weightless, stored",
    opened=opened,
    notes=("the answer is sent after the whole job, with its result, has been committed",),
)
