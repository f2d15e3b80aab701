"""Webhooks to a healthy receiver: by itself, and beside one that is slow and one that is dead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx
import orjson

from deploy.embedded.ports import free_port
from tests.bench.case import Case, Found, Measure, Pace, Stack, Unreliable
from tests.bench.figures import Reading, latency
from tests.bench.jobs import ids_of, post_all, weightless
from tests.bench.rows import Rows

EVENTS = 1000
CLIENTS = 16
SLOW_S = 1.0
PATIENCE_S = 120.0


@dataclass(slots=True)
class Receiver:
    """A server that answers each request after a time, and when each event came first, by the job that it is of."""

    pause_s: float = 0.0
    url: str = ""
    came: dict[UUID, float] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request on one connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(
            int(line.split(b":")[1]) for line in head.lower().splitlines() if line.startswith(b"content-length")
        )
        event = orjson.loads(await reader.readexactly(size))
        if event["type"].startswith("job."):
            self.came.setdefault(UUID(event["data"]["id"]), time.time())
        await asyncio.sleep(self.pause_s)
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def receiving(pause_s: float = 0.0) -> AsyncIterator[Receiver]:
    """A receiver on a free port."""
    receiver = Receiver(pause_s)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server:
        yield receiver


@asynccontextmanager
async def opened(stack: Stack, pace: Pace) -> AsyncIterator[Measure]:
    """Endpoints are made and deleted in each round."""
    base = f"http://{stack.address.host}:{stack.address.port}"
    async with httpx.AsyncClient(base_url=base, timeout=PATIENCE_S) as http:

        async def measure() -> Found:
            found = Found()
            async with receiving() as healthy, receiving(SLOW_S) as slow:
                await _round(stack, http, [healthy.url], healthy, "alone", found)
                dead = f"http://127.0.0.1:{free_port()}/"
                healthy.came.clear()
                await _round(stack, http, [healthy.url, slow.url, dead], healthy, "beside a slow and a dead one", found)
                found.add(Reading("of them to the slow one meanwhile", len(slow.came), "events"))
            return found

        yield measure


async def _round(
    stack: Stack, http: httpx.AsyncClient, urls: list[str], healthy: Receiver, how: str, found: Found
) -> None:
    made = [await _endpoint(http, url) for url in urls]
    calls = weightless()
    began = time.perf_counter()
    ids = ids_of(await post_all(stack.address, [next(calls) for _ in range(EVENTS)], CLIENTS))
    async with asyncio.timeout(PATIENCE_S):
        while len(healthy.came) < EVENTS:  # noqa: ASYNC110 - another process sends
            await asyncio.sleep(0.01)
    seconds = time.perf_counter() - began
    await stack.rows.settle()
    found.add(
        *latency(f"{how}: from the end of a job to its receiver", await _waits(stack.rows, ids, healthy)),
        Reading(f"{how}: {EVENTS:,} jobs submitted, run and told", EVENTS / seconds, "/s"),
    )
    for one in made:
        (await http.delete(f"/v1/webhooks/{one}")).raise_for_status()


async def _endpoint(http: httpx.AsyncClient, url: str) -> str:
    made = await http.post("/v1/webhooks", json={"url": url, "events": ["job.*"]})
    made.raise_for_status()
    told: dict[str, Any] = made.json()
    return str(told["id"])


async def _waits(rows: Rows, ids: list[UUID], healthy: Receiver) -> list[float]:
    """Milliseconds from each job's commit, or its end where that is not known, until its event came."""
    ended = await rows.ended(ids, commits=await rows.commits_kept())
    waits = []
    for id_ in ids:
        at = ended[id_].committed or ended[id_].finished
        if at is None or id_ not in healthy.came:
            raise Unreliable(f"job {id_} has not ended, or was not told of")
        waits.append((healthy.came[id_] - at) * 1000)
    return waits


CASE = Case(
    name="hooks",
    title=f"{EVENTS:,} jobs whose ends are told by webhook, signed",
    opened=opened,
    notes=(
        f"the slow receiver takes {SLOW_S:g} s for each answer, the dead one takes no connection",
        "the wait counts from the commit of the job's end; 16 clients submit as fast as they can meanwhile",
    ),
)
