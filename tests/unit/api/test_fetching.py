from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from api.feeding.fetching import UntilHalt
from api.feeding.halt import Halt
from api.feeding.shaping import Stop
from api.fetching import Fetching
from catalog.loader import Catalog
from catalog.schema import EncodeFacts, Spec, Tasks
from tasks.errors import InvalidRequest, LimitExceeded
from tasks.prepare import Checked, Limits, check
from tasks.request import parse_request
from tasks.settings import Settings
from tasks.sources import Fetched
from tasks.webhooks.connect import Opener
from tasks.webhooks.guard import Guard
from tests.unit.tasks.webhooks.receivers import PUBLIC, Names, Receiver, receiving, says, stalls

SPEC = Spec(
    id="org/model",
    family="fake",
    tasks=Tasks(encode=EncodeFacts(dims=4)),
    parameters=0,
    max_length=1000,
    inputs=("text", "image", "audio", "document"),
)
LIMITS = Limits(max_items=100, max_text_chars=1000, default_retention_s=600, max_retention_s=6000)
FIVE = says("200 OK", b"12345")


def asked(*items: Any) -> Checked:
    raw = {"verb": "encode", "model": "org/model", "items": list(items)}
    return check(parse_request(raw, 100), Catalog([SPEC]), LIMITS)


def documents(url: str, count: int) -> Checked:
    return asked(*[{"document": {"url": f"{url}/{n}"}} for n in range(count)])


def fetching(**changes: Any) -> Fetching:
    return Fetching(
        Settings(**{"max_body_bytes": 10_000, **changes}),
        Opener(Guard.of(PUBLIC, http=True), resolve=Names([[PUBLIC]])),
    )


@dataclass
class Held(Opener):
    """Opens nothing: holds every fetch until it is let go, and counts those at once."""

    guard: Guard = field(default_factory=Guard)
    most: int = 0
    now: int = 0
    begun: asyncio.Condition = field(default_factory=asyncio.Condition)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def fetch(self, url: str, *, timeout_s: float, most_bytes: int, param: str = "url") -> Fetched:
        async with self.begun:
            self.now += 1
            self.most = max(self.most, self.now)
            self.begun.notify_all()
        try:
            await self.go.wait()
        finally:
            self.now -= 1
        return Fetched(b"12345"[:most_bytes])

    async def until(self, count: int) -> None:
        async with asyncio.timeout(5.0), self.begun:
            await self.begun.wait_for(lambda: self.now >= count)


@pytest.fixture
async def servers() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def at(server: Receiver) -> str:
    return f"http://files.example.com:{server.port}"


async def test_each_item_gets_its_file_or_its_fault(servers: AsyncExitStack) -> None:
    good = await servers.enter_async_context(receiving(FIVE))
    gone = await servers.enter_async_context(receiving(says("404 Not Found", b"secret")))

    whole = await fetching().fill(
        asked(
            {"document": {"url": at(good)}},
            {"images": [{"url": at(gone)}]},
            {"audio": {"url": "https://127.0.0.1/"}},
            {"text": "a", "images": [{"url": f"{at(good)}/a"}]},
            "a text",
        ),
        "default",
    )

    assert {place: fault["code"] for place, fault in whole.faults.items()} == {1: "url_unreachable", 2: "url_refused"}
    assert whole.faults[1]["param"] == "items[1].images[0].url"
    assert "secret" not in str(whole.faults)
    assert whole.items[0] == {"document": {"data": b"12345"}}
    assert whole.items[3] == {"text": "a", "images": [{"data": b"12345"}]}


async def test_one_url_is_fetched_once_and_counts_each_time(servers: AsyncExitStack) -> None:
    server = await servers.enter_async_context(receiving(says("200 OK", b"x" * 1500)))
    gone = await servers.enter_async_context(receiving(says("404 Not Found")))
    urls = [at(server)] * 3 + [at(gone)] * 2

    whole = await fetching(max_body_bytes=4000).fill(asked(*[{"document": {"url": url}} for url in urls]), "default")

    assert (server.connections, gone.connections) == (1, 1)
    assert [len(item["document"]["data"]) for item in whole.items] == [1500, 1500, 0, 0, 0]
    assert whole.faults[2]["code"] == "limit_exceeded"
    assert [whole.faults[place]["param"] for place in (3, 4)] == ["items[3].document.url", "items[4].document.url"]
    assert whole.faults[4]["message"] == "'items[4].document.url' answers 404, not 200."


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"fetch": False}, InvalidRequest, "fetches nothing"),
        ({"fetch_files": 2}, LimitExceeded, "ROOST_FETCH_FILES"),
    ],
)
async def test_what_no_file_is_fetched_for(changes: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        await fetching(**changes).fill(documents("https://files.example.com", 3), "default")


async def test_files_are_bounded_each_and_together(servers: AsyncExitStack) -> None:
    server = await servers.enter_async_context(receiving(says("200 OK", b"x" * 1500)))
    each = await fetching(fetch_bytes=1024).fill(documents(at(server), 2), "default")
    together = await fetching(max_body_bytes=4000).fill(documents(at(server), 4), "default")

    assert [fault["code"] for fault in each.faults.values()] == ["limit_exceeded"] * 2
    assert [fault["code"] for fault in together.faults.values()] == ["limit_exceeded"] * 2
    assert all("ROOST_MAX_BODY_BYTES" in fault["message"] for fault in together.faults.values())
    assert sum(len(item["document"]["data"]) for item in together.items) == 3000


async def test_the_files_of_a_job_have_their_time_together(servers: AsyncExitStack) -> None:
    slow = await servers.enter_async_context(receiving(stalls))
    good = await servers.enter_async_context(receiving(FIVE))
    urls = [at(good), *[at(slow)] * 8]

    whole = await fetching(fetch_timeout_s=0.3, fetch_in_flight=8).fill(
        asked(*[{"document": {"url": url}} for url in urls]), "default"
    )

    assert whole.items[0] == {"document": {"data": b"12345"}}
    assert {fault["code"] for fault in whole.faults.values()} == {"url_unreachable"}
    assert sorted(whole.faults) == list(range(1, 9))
    assert all(fault["retryable"] for fault in whole.faults.values())


async def test_one_tenant_holds_no_more_than_its_part() -> None:
    opener = Held()
    it = Fetching(Settings(fetch_in_flight=8), opener)
    async with asyncio.TaskGroup() as group:
        greedy = [group.create_task(it.fill(documents("https://a.example.com", 20), "greedy")) for _ in range(3)]
        await opener.until(2)
        other = group.create_task(it.fill(documents("https://b.example.com", 1), "other"))
        await opener.until(3)
        assert opener.now == 3
        opener.go.set()
    assert opener.most == 3
    assert not any(one.result().faults for one in [*greedy, other])


async def test_a_halted_batch_waits_for_no_server() -> None:
    opener, halt = Held(), Halt()
    door = UntilHalt(Fetching(Settings(), opener), halt)
    waiting = asyncio.create_task(door.fill(documents("https://a.example.com", 4), "default"))
    await opener.until(4)
    halt.set(Stop.CANCELLED)

    with pytest.raises(TimeoutError):
        await waiting
    assert opener.now == 0
    with pytest.raises(TimeoutError):
        await door.fill(documents("https://a.example.com", 1), "default")
