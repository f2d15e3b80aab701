"""Single-item requests that wait for their result, 32 at a time, weightless and stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.bench.case import Case, Found, Measure, Pace, Stack, checked
from tests.bench.figures import Reading, at_least, latency
from tests.bench.jobs import WAIT_S, weightless
from tests.bench.load import closed_loop

PEER_PER_S = 285
CLIENTS = 32


@asynccontextmanager
async def opened(stack: Stack, pace: Pace) -> AsyncIterator[Measure]:
    """Nothing beside the stack."""

    async def measure() -> Found:
        found = Found()
        for clients in (8, CLIENTS, 128):
            meter = stack.meter()
            calls = weightless(wait_s=WAIT_S)
            window = checked(await closed_loop(stack.address, calls, clients, pace.seconds, pace.warmup, probe=meter))
            goal = at_least(1.5 * PEER_PER_S, f"1.5 x {PEER_PER_S}") if clients == CLIENTS else None
            load = f"{clients} clients"
            found.add(Reading(f"{load}: requests", window.per_second(window.answers), "/s", goal))
            found.add(*latency(load, window.latencies_ms))
            found.spent(load, meter.spent, window.answers)
        return found

    yield measure


CASE = Case(
    name="sync",
    title="single-item requests that wait for the result, weightless, stored",
    opened=opened,
    notes=(
        "peer: SIE 0.10.1, its own weightless model, nothing stored: 82 / 250 / 285 requests/s at 1 / 8 / 32 clients",
        "the peer was measured on the same kind of machine, not in this run",
    ),
)
