"""Real embeddings: the service, the hand-written server and the limit in process, on the same texts in turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from catalog.loader import Catalog
from catalog.weights import locate
from tests.bench import beats
from tests.bench.case import Case, Found, Measure, Pace, Stack, Unreliable, checked
from tests.bench.client import Address, Connection, ask_json, request
from tests.bench.figures import Reading, Target, at_least, at_most, latency, percentile
from tests.bench.jobs import MINILM, WAIT_S, submission
from tests.bench.limit import Limit, Ran
from tests.bench.load import Call, Window, closed_loop
from tests.bench.packing import padding
from tests.bench.peers import Server
from tests.bench.texts import Text, load_tokenizer, texts, total
from tests.bench.usage import CLIENT, Meter, peaks, proportional_mib

BUDGET = 1024
COUNT = 2048
ALIKE = 0.999
PEER_SLACK_MS = 8.0


@dataclass(frozen=True, slots=True)
class Load:
    """A load and what the service should reach under it: a share of the limit, and a bound on padding."""

    clients: int
    items: int
    share: Target | None = None
    padding: Target | None = None

    @property
    def name(self) -> str:
        """As it is printed."""
        return f"{self.clients} x {self.items}"


LOADS = (
    Load(1, 1),
    Load(16, 1, at_least(0.80)),
    Load(64, 1, at_least(0.85)),
    Load(256, 1, at_least(0.90), at_most(0.03)),
    Load(8, 32, at_least(0.90), at_most(0.03)),
)


@dataclass(frozen=True, slots=True)
class Beside:
    """What is measured in turns with the service."""

    hand: Server
    limit: Limit
    chosen: Sequence[Text]


@asynccontextmanager
async def opened(stack: Stack, pace: Pace) -> AsyncIterator[Measure]:
    """Load the model everywhere and see that all three give the same vectors."""
    choice = Catalog.load([]).find(MINILM)
    folder = locate(choice.spec)
    assert folder is not None, "this model has weights"
    chosen = texts(COUNT, load_tokenizer(folder), choice.spec.max_length)
    async with AsyncExitStack() as ending:
        hand = await Server.start(folder)
        ending.push_async_callback(hand.stop)
        limit = Limit(chosen, BUDGET)
        await limit.start(folder, ending)
        beside = Beside(hand, limit, chosen)
        await _compare(stack, beside)

        async def measure() -> Found:
            found = Found()
            for load in LOADS:
                await _round(stack, beside, pace, load, found)
            found.add(*_memory(stack, hand))
            return found

        yield measure


async def _round(stack: Stack, beside: Beside, pace: Pace, load: Load, found: Found) -> None:
    """One load on the limit, the service and the hand-written server, one after the other."""
    ways = await beside.limit.run(pace.seconds / 2)
    best = max(ways, key=lambda ran: ran.tokens_per_s)
    before = await beats.fresh(stack.redis_url)
    meter = stack.meter()
    served = await _window(stack.address, _ours(beside.chosen, load.items), load, pace, meter)
    spent = (await beats.fresh(stack.redis_url)).since(before)
    theirs = Meter(beside.hand.pid)
    by_hand = await _window(beside.hand.address, _by_hand(beside.chosen, load.items), load, pace, theirs)

    name = load.name
    found.add(*_rates(name, beside.chosen, served, by_hand, best, load))
    found.add(*latency(f"{name}: service", served.latencies_ms, p50=_slack(load, by_hand)))
    found.add(*latency(f"{name}: by hand", by_hand.latencies_ms))
    found.add(*_cpu(name, beside.chosen, served, meter, by_hand, theirs, best))
    wasted = padding(spent.real_tokens, spent.padded_tokens)
    found.add(
        Reading(f"{name}: padding in the service", wasted, "share", load.padding),
        Reading(f"{name}: items a batch in the service", spent.items / max(1, spent.batches), "items"),
        Reading(f"{name}: padding at the limit", best.padding, "share"),
        Reading(f"{name}: client's CPU, service", meter.spent.share(CLIENT), "cores"),
        Reading(f"{name}: CPU taken by others, service", meter.spent.others, "cores"),
        Reading(f"{name}: CPU taken by others, by hand", theirs.spent.others, "cores"),
    )
    found.cpu_us[f"{name}, service"] = meter.spent.per(served.answers)


def _rates(
    name: str, chosen: Sequence[Text], served: Window, by_hand: Window, best: Ran, load: Load
) -> Iterator[Reading]:
    """Rates in items of the set's mean length, so that a window's luck with long texts does not count."""
    mean = total(chosen) / len(chosen)
    ours, theirs, limit = served.per_second(served.tokens), by_hand.per_second(by_hand.tokens), best.tokens_per_s
    yield Reading(f"{name}: service", ours / mean, "items/s")
    yield Reading(f"{name}: by hand", theirs / mean, "items/s")
    yield Reading(f"{name}: limit in process", limit / mean, "items/s")
    yield Reading(f"{name}: service / limit", ours / limit, "ratio", load.share)
    yield Reading(f"{name}: service / by hand", ours / theirs if theirs else float("inf"), "ratio")


def _cpu(
    name: str, chosen: Sequence[Text], served: Window, ours: Meter, by_hand: Window, theirs: Meter, best: Ran
) -> Iterator[Reading]:
    """CPU milliseconds for an item of mean length: what is left to compare where others use the machine as well."""
    mean = total(chosen) / len(chosen)
    engine = ours.spent.cpu.get("child", 0.0)
    whole = sum(cpu for part, cpu in ours.spent.cpu.items() if part != CLIENT)
    hand = theirs.spent.cpu.get("by hand", 0.0)
    for what, cpu_s, window in (
        ("engine child", engine, served),
        ("whole service", whole, served),
        ("by hand", hand, by_hand),
    ):
        yield Reading(f"{name}: CPU an item, {what}", cpu_s / window.tokens * mean * 1000, "ms")
    yield Reading(f"{name}: CPU an item, limit in process", best.cpu_us_per_token * mean / 1000, "ms")


def _slack(load: Load, by_hand: Window) -> Target | None:
    """At one client the service may take this much longer than the hand-written server in the same round."""
    if load.clients > 1:
        return None
    return at_most(percentile(by_hand.latencies_ms, 50) + PEER_SLACK_MS, f"by hand + {PEER_SLACK_MS:g} ms")


async def _window(address: Address, calls: Iterator[Call], load: Load, pace: Pace, meter: Meter) -> Window:
    return checked(await closed_loop(address, calls, load.clients, pace.seconds, pace.warmup, probe=meter))


def _groups(chosen: Sequence[Text], items: int) -> list[Sequence[Text]]:
    return [chosen[start : start + items] for start in range(0, len(chosen) - items + 1, items)]


def _ours(chosen: Sequence[Text], items: int) -> Iterator[Call]:
    return cycle(
        [
            Call(submission(MINILM, [text.text for text in group], WAIT_S), items, total(group))
            for group in _groups(chosen, items)
        ]
    )


def _by_hand(chosen: Sequence[Text], items: int) -> Iterator[Call]:
    return cycle(
        [
            Call(request("POST", "/encode", {"texts": [text.text for text in group]}), items, total(group))
            for group in _groups(chosen, items)
        ]
    )


def _memory(stack: Stack, hand: Server) -> Iterator[Reading]:
    """Peak of the processes that hold the model, and what the whole stack holds now."""
    by_part = peaks(stack.pid)
    yield Reading("peak memory: engine child", by_part.get("child", 0.0), "MiB")
    yield Reading("peak memory: API", by_part.get("api", 0.0), "MiB")
    yield Reading("peak memory: by hand", sum(peaks(hand.pid).values()), "MiB")
    yield Reading("memory of the whole stack, shared pages once", proportional_mib(stack.pid), "MiB")


async def _compare(stack: Stack, beside: Beside) -> None:
    """Raise Unreliable unless the service, the hand-written server and the model itself agree."""
    sample = [text.text for text in beside.chosen[:20]]
    truth = np.array(await beside.limit.vectors(sample))
    for name, address, data in (
        ("the service", stack.address, submission(MINILM, sample, WAIT_S)),
        ("the hand-written server", beside.hand.address, request("POST", "/encode", {"texts": sample})),
    ):
        connection = await Connection.open(address)
        try:
            got = np.array(_vectors(await ask_json(connection, data, (200,))))
        finally:
            await connection.close()
        worst = float(np.min(np.sum(got * truth, axis=1)))
        if worst < ALIKE:
            raise Unreliable(f"{name} gives other vectors than the model: worst cosine {worst:.4f}")


def _vectors(body: dict[str, Any]) -> list[list[float]]:
    if "vectors" in body:
        given: list[list[float]] = body["vectors"]
        return given
    if body["status"] != "succeeded":
        raise Unreliable(f"the job ended as {body['status']}: {body['error']}")
    return [item["dense"]["values"] for item in body["result"]["items"]]


CASE = Case(
    name="embeddings",
    title="all-MiniLM-L6-v2, mixed lengths, all cores, clients x items a request",
    opened=opened,
    notes=(
        f"limit: all texts known beforehand, sorted, packed to {BUDGET} padded tokens; measured before each load",
        "of two ways the better counts as the limit: one process with all cores a batch, or one process a core",
        "rates are tokens a second over the mean length of the set, so luck with long texts does not count",
        "all three give the same vectors (cosine above 0.999 on twenty texts, checked first)",
        "padding is 1 - real / computed tokens, from the worker's heartbeat",
    ),
)
