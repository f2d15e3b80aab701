"""What another service's route costs over the native one: one client, one weightless text, the routes in turn."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from tests.bench.case import Case, Found, Measure, Pace, Stack
from tests.bench.client import Connection, Refused, request
from tests.bench.figures import Reading, at_most, latency, percentile
from tests.bench.jobs import FAKE, MSGPACK, WAIT_S, submission

NATIVE = "POST /v1/jobs"
TEXTS = [f"a short text, number {kind}" for kind in range(64)]


def _embeddings(encoding: str) -> Callable[[str], bytes]:
    def made(text: str) -> bytes:
        return request("POST", "/v1/embeddings", {"model": FAKE, "input": text, "encoding_format": encoding})

    return made


def _peers(text: str) -> bytes:
    headers = [("Accept", MSGPACK), ("X-SIE-SDK-Version", "0.10.1")]
    return request("POST", f"/v1/encode/{FAKE}", {"items": [{"text": text}]}, headers, packed=True)


WAYS: Mapping[str, Callable[[str], bytes]] = {
    NATIVE: lambda text: submission(FAKE, [text], WAIT_S),
    "/v1/embeddings, numbers": _embeddings("float"),
    "/v1/embeddings, base64": _embeddings("base64"),
    "/v1/encode, msgpack": _peers,
}
"""How the same text is sent; the first is what the others are held against."""


@asynccontextmanager
async def opened(stack: Stack, pace: Pace) -> AsyncIterator[Measure]:
    """Nothing beside the stack."""
    sent = {way: [make(text) for text in TEXTS] for way, make in WAYS.items()}

    async def measure() -> Found:
        found = Found()
        meter = stack.meter()
        await _in_turn(stack, sent, pace.jobs // 40)
        meter.opened()
        spent = await _in_turn(stack, sent, pace.jobs // 4)
        meter.closed()
        for way, latencies in spent.items():
            found.add(*latency(way, latencies))
        native = percentile(spent[NATIVE], 50)
        for way in list(WAYS)[1:]:
            added = percentile(spent[way], 50) - native
            found.add(Reading(f"added by {way}, p50", added, "ms", at_most(1.0)))
        found.spent("1 client", meter.spent, sum(map(len, spent.values())))
        return found

    yield measure


async def _in_turn(stack: Stack, sent: Mapping[str, Sequence[bytes]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each answer by its way; the ways take turns, so that what else happens falls on all of them.

    Raises Refused.
    """
    spent: dict[str, list[float]] = {way: [] for way in sent}
    connection = await Connection.open(stack.address)
    try:
        for number in range(rounds):
            for way, calls in sent.items():
                began = time.perf_counter()
                answer = await connection.ask(calls[number % len(calls)])
                spent[way].append((time.perf_counter() - began) * 1000)
                if answer.status != 200:
                    raise Refused(answer)
    finally:
        await connection.close()
    return spent


CASE = Case(
    name="dialects",
    title="time of another service's route over POST /v1/jobs, one client, weightless, stored, the routes in turn",
    opened=opened,
)
