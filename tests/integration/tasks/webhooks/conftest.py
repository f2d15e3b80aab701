"""A receiver of webhooks on this machine, and a sender that may reach it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from tasks.db import AsyncDatabase
from tasks.webhooks.addresses import parse_allowed
from tasks.webhooks.connect import Opener
from tasks.webhooks.guard import Guard
from tasks.webhooks.sender import Rules, Sender

PATIENCE_S = 20.0


@dataclass
class Receiver:
    """What came, by path, and how it is answered: by a status, or by what a function does."""

    url: str = ""
    came: dict[str, list[tuple[dict[str, str], bytes]]] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    at_once: dict[str, int] = field(default_factory=dict)
    most_at_once: dict[str, int] = field(default_factory=dict)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        path = request.path
        self.at_once[path] = self.at_once.get(path, 0) + 1
        self.most_at_once[path] = max(self.most_at_once.get(path, 0), self.at_once[path])
        try:
            async with self.news:
                self.came.setdefault(path, []).append(({k.lower(): v for k, v in request.headers.items()}, body))
                self.news.notify_all()
            answer = self.answers.get(path, 204)
            if callable(answer):
                answer = await answer(len(self.came[path]))
            return answer if isinstance(answer, web.StreamResponse) else web.Response(status=answer)
        finally:
            self.at_once[path] -= 1

    async def until(self, count: int, path: str = "/") -> list[tuple[dict[str, str], bytes]]:
        """Wait until so many have come."""
        async with asyncio.timeout(PATIENCE_S), self.news:
            await self.news.wait_for(lambda: len(self.came.get(path, ())) >= count)
        return self.came[path]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", found.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    found.url = f"http://{host}:{port}"
    yield found
    await runner.cleanup()


Start = Callable[..., Awaitable[Sender]]


@pytest.fixture
async def start(database_url: str) -> AsyncIterator[Start]:
    """Starts senders; all are stopped at the end."""
    async with AsyncExitStack() as stack:

        async def begin(timeout_s: float = 5.0, most: int = 200, **given: Any) -> Sender:
            database = AsyncDatabase(database_url, 4)
            stack.push_async_callback(database.close)

            async def nothing(*_: Any) -> None:
                return None

            values: dict[str, Any] = {"results": nothing, "jitter": lambda: 0.0, **given}
            opener = Opener(Guard(parse_allowed("127.0.0.1")))
            sender = Sender(database, opener, rules=Rules(timeout_s, most, "https://roost.example.org"), **values)
            task = asyncio.create_task(sender.run())

            async def end() -> None:
                sender.close()
                await task

            stack.push_async_callback(end)
            return sender

        yield begin
