"""A batch of a hundred thousand lines from its file to its output, a feeder that is killed, and callers beside it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson

from tests.bench.case import Case, Found, Measure, Pace, Stack, Unreliable, checked
from tests.bench.figures import Reading, at_most, latency, percentile
from tests.bench.jobs import FAKE, WAIT_S, weightless
from tests.bench.load import Window, open_loop
from tests.bench.usage import members, peaks

MOST, QUICK = 100_000, 20_000
RATE = 20
"""Interactive calls a second beside it."""
AT_ONCE = 16
"""Few connections, so that each is used before the server hangs up an idle one."""
PATIENCE_S = 900.0
LOOK_S = 0.05
ENDED = {"completed", "failed", "expired", "cancelled"}


@asynccontextmanager
async def opened(stack: Stack, pace: Pace) -> AsyncIterator[Measure]:
    """A file of lines, uploaded once for each batch."""
    base = f"http://{stack.address.host}:{stack.address.port}"
    lines = QUICK if pace.quick else MOST
    async with httpx.AsyncClient(base_url=base, timeout=PATIENCE_S) as http:

        async def measure() -> Found:
            found = Found()
            await _alone(stack, http, lines, found)
            await _killed(stack, http, lines // 4, found)
            await _beside(stack, http, pace, found)
            return found

        yield measure


async def _alone(stack: Stack, http: httpx.AsyncClient, lines: int, found: Found) -> None:
    """Lines a second, and what memory it took."""
    began = time.perf_counter()
    file = await _upload(http, lines)
    uploaded = time.perf_counter()
    meter = stack.meter()
    meter.opened()
    batch = await _ended(http, await _create(http, file))
    ended = time.perf_counter()
    meter.closed()
    if batch["status"] != "completed" or batch["request_counts"]["completed"] != lines:
        raise Unreliable(f"the batch ended as {batch['status']} with {batch['request_counts']}")
    seen = await _read_back(http, batch["output_file_id"])
    if seen != lines:
        raise Unreliable(f"{seen} different lines of {lines} are in the output")
    found.add(
        Reading(f"{lines:,} lines, upload", uploaded - began, "s"),
        Reading(f"{lines:,} lines, from its creation to its output", ended - uploaded, "s"),
        Reading(f"{lines:,} lines", lines / (ended - uploaded), "lines/s"),
    )
    peak = peaks(stack.pid)
    found.add(*(Reading(f"peak memory, {role}", peak[role], "MiB", at_most(512)) for role in ("api", "feeder")))
    found.spent("backfill alone", meter.spent, lines)


async def _killed(stack: Stack, http: httpx.AsyncClient, lines: int, found: Found) -> None:
    """From SIGKILL of the feeder until more lines have ended than before it."""
    id_ = await _create(http, await _upload(http, lines))
    before = await _moved(http, id_, lines // 4)
    for process, role in members(stack.pid):
        if role == "feeder":
            os.kill(process.pid, signal.SIGKILL)
    began = time.perf_counter()
    await _moved(http, id_, before + 1)
    found.add(Reading("feeder killed: until more lines have ended", time.perf_counter() - began, "s"))
    batch = await _ended(http, id_)
    seen = await _read_back(http, batch["output_file_id"])
    if seen != lines:
        raise Unreliable(f"{seen} different lines of {lines} are in the output after a kill")


async def _beside(stack: Stack, http: httpx.AsyncClient, pace: Pace, found: Found) -> None:
    """Interactive calls without a backfill and with one at full speed, and how fast that is cancelled."""
    alone = await _calls(stack, pace)
    id_ = await _create(http, await _upload(http, MOST))
    before = await _moved(http, id_, 1)
    began = time.perf_counter()
    beside = await _calls(stack, pace)
    lines = await _count(http, id_) - before
    seconds = time.perf_counter() - began
    cancelled = time.perf_counter()
    (await http.post(f"/v1/batches/{id_}/cancel")).raise_for_status()
    batch = await _ended(http, id_)
    if batch["status"] != "cancelled":
        raise Unreliable(f"the batch ended as {batch['status']} before it could be cancelled")
    found.add(
        Reading("cancel, until it is", time.perf_counter() - cancelled, "s", at_most(2)),
        *latency(f"interactive, {RATE}/s, alone", alone.latencies_ms),
        *latency(f"interactive, {RATE}/s, beside a backfill", beside.latencies_ms),
        Reading("backfill beside interactive calls", lines / seconds, "lines/s"),
    )
    for share, goal in ((50, None), (99, at_most(1.25))):
        ratio = percentile(beside.latencies_ms, share) / percentile(alone.latencies_ms, share)
        found.add(Reading(f"interactive p{share} with over without", ratio, "", goal))


async def _calls(stack: Stack, pace: Pace) -> Window:
    seconds = 15.0 if pace.quick else 30.0
    return checked(await open_loop(stack.address, weightless(wait_s=WAIT_S), RATE, seconds, pace.warmup, most=AT_ONCE))


async def _upload(http: httpx.AsyncClient, lines: int) -> str:
    content = b"".join(
        orjson.dumps(
            {
                "custom_id": f"line-{number}",
                "method": "POST",
                "url": "/v1/embeddings",
                "body": {"model": FAKE, "input": f"a short text, number {number}"},
            }
        )
        + b"\n"
        for number in range(lines)
    )
    sent = await http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("lines.jsonl", content)})
    sent.raise_for_status()
    return str(sent.json()["id"])


async def _create(http: httpx.AsyncClient, file: str) -> str:
    body = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    made = await http.post("/v1/batches", json=body)
    made.raise_for_status()
    return str(made.json()["id"])


async def _get(http: httpx.AsyncClient, id_: str) -> dict[str, Any]:
    found = await http.get(f"/v1/batches/{id_}")
    found.raise_for_status()
    batch: dict[str, Any] = found.json()
    return batch


async def _count(http: httpx.AsyncClient, id_: str) -> int:
    return int((await _get(http, id_))["request_counts"]["completed"])


async def _moved(http: httpx.AsyncClient, id_: str, count: int) -> int:
    """How many lines have ended, once at least so many have."""
    async with asyncio.timeout(PATIENCE_S):
        while (now := await _count(http, id_)) < count:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(LOOK_S)
    return now


async def _ended(http: httpx.AsyncClient, id_: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while (batch := await _get(http, id_))["status"] not in ENDED:  # noqa: ASYNC110 - another process ends it
            await asyncio.sleep(LOOK_S)
    return batch


async def _read_back(http: httpx.AsyncClient, file: str) -> int:
    """How many different lines the output has; each once, or it raises Unreliable."""
    seen: set[str] = set()
    async with http.stream("GET", f"/v1/files/{file}/content") as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if (name := orjson.loads(line)["custom_id"]) in seen:
                raise Unreliable(f"{name} is in the output twice")
            seen.add(name)
    return len(seen)


CASE = Case(
    name="backfill",
    title="a batch of weightless embeddings by file, interactive calls beside one, and a feeder that is killed",
    opened=opened,
    notes=(
        f"{MOST:,} lines, {QUICK:,} in the quick run; the output is read back and every line is in it once",
        f"interactive: {RATE} calls a second of one text each that wait for their result, whatever comes back",
    ),
)
