"""Server-sent events: states, not a log; resumable; the stream ends with the job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from api.schemas import JobObject
from tasks import keys
from tasks.notices import Change, pack_changes

if TYPE_CHECKING:
    import httpx
    import redis

    from tests.integration.api.conftest import Api, Consumer, Until


class Stream:
    """Reads the events of one response."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> dict[str, Any] | None:
        """The next event; None at the end of the stream."""
        found: dict[str, Any] = {}
        async for line in self._lines:
            if not line and "data" in found:
                return {**found, "data": orjson.loads(found["data"])}
            name, _, value = line.partition(": ")
            if name:
                found[name] = value
        return None


@asynccontextmanager
async def following(api: Api, job: dict[str, Any], last: str | None = None) -> AsyncIterator[Stream]:
    headers = {} if last is None else {"Last-Event-ID": last}
    async with api.http.stream("GET", job["urls"]["events"], headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Stream(response)


async def test_a_stream_tells_the_state_now_then_the_end_and_ends(api: Api, idle_consumer: Consumer) -> None:
    job = (await api.submit("cat")).json()
    async with following(api, job) as stream:
        first = await stream.next()
        assert first is not None
        assert (first["event"], first["id"], first["data"]) == ("queued", "1", job)
        idle_consumer.release()
        last = await stream.next()
        assert last is not None
        assert (last["event"], int(last["id"]) > 1) == ("succeeded", True)
        assert JobObject.model_validate(last["data"]).status == "succeeded"
        assert await stream.next() is None


async def test_an_ended_job_is_told_once_and_the_stream_ends(api: Api, consumer: Consumer) -> None:
    job = (await api.submit("cat", wait=10)).json()
    async with following(api, job) as stream:
        only = await stream.next()
        assert only is not None
        assert only["event"] == "succeeded"
        assert await stream.next() is None


async def test_a_stream_resumed_at_the_state_now_tells_only_what_is_newer(api: Api, until: Until) -> None:
    job = (await api.submit("cat")).json()
    async with following(api, job, last="1") as stream:
        waiting = asyncio.create_task(stream.next())
        await until(lambda: len(api.services.waiting))
        await api.http.post(job["urls"]["cancel"])
        event = await waiting
        assert event is not None
        assert event["event"] == "cancelled"


async def test_a_stream_resumed_after_the_last_event_has_nothing_to_tell(api: Api) -> None:
    job = (await api.submit("cat")).json()
    await api.http.post(job["urls"]["cancel"])
    async with following(api, job) as stream:
        last = await stream.next()
    assert last is not None
    response = await api.http.get(job["urls"]["events"], headers={"Last-Event-ID": last["id"]})
    assert (response.status_code, response.content) == (204, b"")


async def test_a_strange_last_event_id_is_a_422(api: Api) -> None:
    job = (await api.submit("cat")).json()
    for strange in ("x", "-1", "9" * 40):
        response = await api.http.get(job["urls"]["events"], headers={"Last-Event-ID": strange})
        assert (response.status_code, response.json()["error"]["param"]) == (422, "Last-Event-ID")


async def test_a_running_job_tells_its_progress(api: Api, broker: redis.Redis) -> None:
    job = (await api.submit("a", "b")).json()
    async with following(api, job) as stream:
        first = await stream.next()
        assert first is not None
        broker.publish(keys.CHANGES, pack_changes([Change(UUID(job["id"]), "running", 1, 1)]))
        event = await stream.next()
        assert event is not None
        assert (event["event"], event["id"], event["data"]["items_done"]) == ("progress", "1", 1)


async def test_a_stream_ends_when_its_process_does(api: Api) -> None:
    job = (await api.submit("cat")).json()
    async with following(api, job) as stream:
        assert await stream.next() is not None
        api.services.waiting.close()
        assert await stream.next() is None


async def test_a_reader_that_leaves_frees_its_place(api: Api, until: Until) -> None:
    job = (await api.submit("cat")).json()
    async with following(api, job) as stream:
        assert await stream.next() is not None
        assert len(api.services.waiting) == 1
    await until(lambda: len(api.services.waiting) == 0)
