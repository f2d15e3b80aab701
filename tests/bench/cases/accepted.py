"""Submissions that one API process accepts: the id is told when the row is committed."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from tests.bench.case import Case, Found, Measure, Pace, Stack, checked
from tests.bench.figures import Reading, at_least, at_most, latency
from tests.bench.jobs import weightless
from tests.bench.load import closed_loop, is_accepted, open_loop
from tests.bench.usage import members

CLIENTS = 16
RATE = 1000


@asynccontextmanager
async def opened(stack: Stack, pace: Pace) -> AsyncIterator[Measure]:
    """Nothing beside the stack."""

    async def measure() -> Found:
        found = Found()
        with paused(stack):
            await _closed(stack, pace, found, "device worker stopped")
        await stack.rows.settle()
        with paused(stack):
            await _open(stack, pace, found)
        await stack.rows.settle()
        await _closed(stack, pace, found, "device worker running")
        await stack.rows.settle()
        return found

    yield measure


async def _closed(stack: Stack, pace: Pace, found: Found, load: str) -> None:
    meter = stack.meter()
    seconds = min(pace.seconds, 5.0)
    window = checked(await closed_loop(stack.address, weightless(), CLIENTS, seconds, 0.5, is_accepted, meter))
    found.add(Reading(f"{load}, {CLIENTS} clients", window.per_second(window.answers), "/s", at_least(RATE)))
    found.add(*latency(f"{load}, {CLIENTS} clients", window.latencies_ms, p99=at_most(25)))
    found.spent(load, meter.spent, window.answers)


async def _open(stack: Stack, pace: Pace, found: Found) -> None:
    meter = stack.meter()
    seconds = min(pace.seconds, 5.0)
    window = checked(await open_loop(stack.address, weightless(), RATE, seconds, 0.5, is_accepted, meter))
    load = f"device worker stopped, {RATE}/s sent whatever comes back"
    found.add(Reading(load, window.per_second(window.answers), "/s"))
    found.add(*latency(load, window.latencies_ms, p99=at_most(25)))
    found.spent(load, meter.spent, window.answers)


@contextmanager
def paused(stack: Stack) -> Iterator[None]:
    """The device worker's two processes stand still inside this; for seconds only, or its leases would end."""
    pids = [process.pid for process, role in members(stack.pid) if role in {"parent", "child"}]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


CASE = Case(
    name="accepted",
    title="submissions accepted, each committed before its id is told, one API process",
    opened=opened,
    notes=(
        "stopped: the worker's processes stand still (SIGSTOP) while the window runs and work the backlog off after it",
        "at a fixed rate, latency counts from when a request was due, so a stall is not hidden by the clients' waiting",
    ),
)
