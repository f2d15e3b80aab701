"""What keys and limits cost: the same submissions to two more API processes, of which one asks for keys and counts."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle

from tests.bench.case import Case, Found, Measure, Pace, Stack, Unreliable, checked
from tests.bench.client import request
from tests.bench.figures import Reading, at_most, latency, percentile
from tests.bench.jobs import FAKE
from tests.bench.load import Call, is_accepted, open_loop
from tests.bench.peers import Server

RATE = 300
LIMITS = (
    "requests_per_s=100000",
    "burst=100000",
    "open_jobs=10000000",
    "items_per_day=10000000000",
    "tokens_per_day=10000000000",
)
"""All that can be limited is, far above what is sent, so that everything is counted and nothing refused."""


@asynccontextmanager
async def opened(stack: Stack, pace: Pace) -> AsyncIterator[Measure]:
    """Both processes, on the stack's own servers, and a key."""
    async with AsyncExitStack() as ending:
        key = await _command(stack, "keys", "create", "--tenant", "bench")
        await _command(stack, "keys", "limit", "bench", *LIMITS)
        ways: dict[str, tuple[Server, Mapping[str, str]]] = {}
        for name, auth, headers in (
            ("without keys", "off", {}),
            ("with a key and limits", "on", {"Authorization": f"Bearer {key}"}),
        ):
            server = await Server.api({**stack.environment, "ROOST_AUTH": auth})
            ending.push_async_callback(server.stop)
            ways[name] = server, headers

        async def measure() -> Found:
            found = Found()
            medians = []
            for name, (server, headers) in ways.items():
                calls = cycle([Call(_submission(number, headers)) for number in range(64)])
                seconds = min(pace.seconds, 5.0)
                window = checked(await open_loop(server.address, calls, RATE, seconds, pace.warmup, is_accepted))
                found.add(*latency(f"{name}, {RATE}/s", window.latencies_ms, p99=at_most(25)))
                medians.append(percentile(window.latencies_ms, 50))
                await stack.rows.settle()
            found.add(Reading("added by key and limits, p50", medians[1] - medians[0], "ms"))
            return found

        yield measure


def _submission(number: int, headers: Mapping[str, str]) -> bytes:
    body = {"verb": "encode", "model": FAKE, "items": [f"a short text, number {number}"]}
    return request("POST", "/v1/jobs", body, list(headers.items()))


async def _command(stack: Stack, *words: str) -> str:
    """What a `roost` command on the stack's servers says. Raises Unreliable."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "deploy.cli",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **stack.environment},
    )
    said, errors = await process.communicate()
    if process.returncode:
        raise Unreliable(f"roost {' '.join(words[:2])}: {errors.decode()[-300:]}")
    return said.decode().strip()


CASE = Case(
    name="keys",
    title=f"submissions at {RATE}/s to an API process that asks for keys and holds to limits, and to one without",
    opened=opened,
    notes=("every limit there is is set, far above what is sent; the worker works the jobs off at the same time",),
)
