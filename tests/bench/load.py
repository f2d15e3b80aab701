"""Load: a closed loop (a client sends when its last answer came) and an open one (a fixed rate, whatever comes back).

Both warm up first and then count what is answered inside a window. The closed loop measures capacity; the open loop
measures latency from the moment a request was due, so a server that stalls cannot hide it. A warm-up lasts at least
until each client has had one answer, and a window until as many more have come, so that slow servers count too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from tests.bench.client import Address, Answer, Connection

PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Call:
    """One request as bytes, with what it counts for: items and tokens."""

    data: bytes
    items: int = 1
    tokens: int = 0


class Probe(Protocol):
    """Told when the window opens and closes, to read the counters of processes."""

    def opened(self) -> None:
        """The window opens now."""

    def closed(self) -> None:
        """The window has just closed."""


@dataclass(slots=True)
class Window:
    """What was answered inside the window."""

    seconds: float = 0.0
    answers: int = 0
    items: int = 0
    tokens: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    refused: Counter[int] = field(default_factory=Counter)
    sample: bytes = b""

    def per_second(self, count: int) -> float:
        """A count as a rate over the window."""
        return count / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class _State:
    good: Callable[[Answer], bool]
    clients: int
    window: Window = field(default_factory=Window)
    answered: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    counting: bool = False
    stopping: bool = False

    def note(self, call: Call, answer: Answer, seconds: float) -> None:
        self.answered += 1
        self.news.set()
        if not self.good(answer):
            self.window.refused[answer.status] += 1
            self.window.sample = answer.body[:300]
        elif self.counting:
            self.window.answers += 1
            self.window.items += call.items
            self.window.tokens += call.tokens
            self.window.latencies_ms.append(seconds * 1000)


def is_ok(answer: Answer) -> bool:
    """Whether the answer is a 200."""
    return answer.status == 200


def is_accepted(answer: Answer) -> bool:
    """Whether the answer is a 202."""
    return answer.status == 202


async def closed_loop(
    address: Address,
    calls: Iterator[Call],
    clients: int,
    seconds: float,
    warmup: float,
    good: Callable[[Answer], bool] = is_ok,
    probe: Probe | None = None,
) -> Window:
    """`clients` connections, each with one request in flight. `calls` is shared and must not end."""
    state = _State(good, clients)

    async def client(connection: Connection) -> None:
        while not state.stopping:
            call = next(calls)
            began = time.perf_counter()
            answer = await connection.ask(call.data)
            state.note(call, answer, time.perf_counter() - began)

    connections = [await Connection.open(address) for _ in range(clients)]
    try:
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(client(connection))
            await _window(state, seconds, warmup, probe)
    finally:
        for connection in connections:
            await connection.close()
    return state.window


async def open_loop(
    address: Address,
    calls: Iterator[Call],
    rate: float,
    seconds: float,
    warmup: float,
    good: Callable[[Answer], bool] = is_ok,
    probe: Probe | None = None,
    most: int = 256,
) -> Window:
    """`rate` requests a second, evenly spaced. Latency counts from when a request was due. At most `most` in flight."""
    state = _State(good, 1)
    connections = [await Connection.open(address) for _ in range(most)]
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for connection in connections:
        free.put_nowait(connection)

    async def one(connection: Connection, due: float) -> None:
        call = next(calls)
        answer = await connection.ask(call.data)
        state.note(call, answer, time.perf_counter() - due)
        free.put_nowait(connection)

    async def send(group: asyncio.TaskGroup) -> None:
        began = time.perf_counter()
        sent = 0
        while not state.stopping:
            due = began + sent / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(one(await free.get(), due))
            sent += 1

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(send(group))
            await _window(state, seconds, warmup, probe)
    finally:
        for connection in connections:
            await connection.close()
    return state.window


async def _window(state: _State, seconds: float, warmup: float, probe: Probe | None) -> None:
    """Let the load run: warm up, count, then tell the clients to stop."""
    await _pass(state, warmup, state.clients)
    if probe is not None:
        probe.opened()
    began = time.perf_counter()
    state.counting = True
    await _pass(state, seconds, state.clients)
    state.counting = False
    state.window.seconds = time.perf_counter() - began
    if probe is not None:
        probe.closed()
    state.stopping = True


async def _pass(state: _State, seconds: float, answers: int) -> None:
    """Wait for this long, and until this many more answers have come, if they come within the patience."""
    enough = state.answered + answers
    await asyncio.sleep(seconds)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while state.answered < enough:
                state.news.clear()
                await state.news.wait()
