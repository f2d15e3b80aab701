"""What a caller waits for a model that is not loaded, over the load itself."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from tests.bench.case import Case, Found, Measure, Pace, Stack, Unreliable
from tests.bench.client import Connection, ask_json
from tests.bench.figures import Reading, at_most
from tests.bench.jobs import FAKE, WAIT_S, submission
from tests.bench.models import COLD_SECONDS, cold_fakes, cold_minilms

GOAL = at_most(300)


@asynccontextmanager
async def opened(stack: Stack, pace: Pace) -> AsyncIterator[Measure]:
    """Every model is asked for once and never again, so each first request is cold."""
    fakes = {seconds: iter(cold_fakes(seconds)) for seconds in COLD_SECONDS}
    minilms = iter(cold_minilms())
    first = True
    await _asked(stack, FAKE)

    async def measure() -> Found:
        nonlocal first
        found = Found()
        for _ in range(pace.tries):
            for seconds, names in fakes.items():
                total, _ = await _asked(stack, next(names))
                found.add(
                    Reading(f"weightless, load takes {seconds} s: over the load", total - seconds * 1000, "ms", GOAL)
                )
        found.add(*await _real(stack, minilms, first=first))
        first = False
        return found

    yield measure


async def _real(stack: Stack, names: Iterator[str], *, first: bool) -> list[Reading]:
    """A real model; the first of a worker's life also imports the libraries, which counts as load."""
    readings: list[Reading] = []
    for which in ("MiniLM, first of the worker", "MiniLM") if first else ("MiniLM",):
        total, job = await _asked(stack, next(names))
        load_ms = float(job["timings"]["load_ms"])
        readings += [
            Reading(f"{which}: client's wait", total, "ms"),
            Reading(f"{which}: of it the load, as the job tells", load_ms, "ms"),
            Reading(f"{which}: over the load", total - load_ms, "ms", GOAL),
        ]
    return readings


async def _asked(stack: Stack, model: str) -> tuple[float, dict[str, Any]]:
    """Milliseconds until the answer, and the job."""
    connection = await Connection.open(stack.address)
    try:
        began = time.perf_counter()
        job = await ask_json(connection, submission(model, ["a short text"], WAIT_S), (200,))
        total = (time.perf_counter() - began) * 1000
    finally:
        await connection.close()
    if job["status"] != "succeeded":
        raise Unreliable(f"the job on {model} ended as {job['status']}: {job['error']}")
    return total, job


CASE = Case(
    name="cold",
    title="a request for a model that is not loaded, over the load time",
    opened=opened,
    notes=(
        "peer: SIE takes 5.05 s for a load of 0 s (measured earlier on the same kind of machine)",
        "a weightless model loads in exactly the time its spec says; MiniLM's load time is what the job's timings tell",
    ),
)
