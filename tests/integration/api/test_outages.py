"""The link, the broker and the database come and go: nobody is told an id that is not safe, and waits go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgpack
import pytest
from sqlalchemy import text

from api import link
from tasks import keys
from tasks.notices import pack_changes
from tasks.store.sweep import counts

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tasks.db import Database
    from tasks.settings import Settings
    from tests.integration.api.conftest import Api, Consumer, Start, Until

NOWHERE = "127.0.0.1:1"


async def lose_link(api: Api, broker: redis.Redis, until: Until) -> None:
    """Cut the pub/sub connection of the process, and return once it is back."""
    await until(lambda: api.services.link.up)
    broker.client_kill_filter(_type="pubsub")
    await until(lambda: not api.services.link.up)
    await until(lambda: api.services.link.up)


async def test_a_direct_job_gets_its_row_when_the_link_is_lost_and_its_caller_waits_on(
    api: Api, idle_consumer: Consumer, broker: redis.Redis, messages: Callable[[], int], until: Until
) -> None:
    call = asyncio.create_task(api.submit("cat", wait=20))
    await asyncio.to_thread(idle_consumer.wait_taken, 1)
    (job,) = idle_consumer.taken
    await lose_link(api, broker, until)
    await api.services.waiting.settle()
    assert (await api.http.get(f"/v1/jobs/{job.id}")).json()["status"] == "queued"
    assert messages() == 0, "the consumer holds its message, so no second one is sent"
    assert not call.done()
    idle_consumer.release()
    assert (await call).json()["status"] == "succeeded"


async def test_a_job_whose_message_is_lost_with_the_link_is_sent_again(
    api: Api, broker: redis.Redis, messages: Callable[[], int], settings: Settings, until: Until
) -> None:
    call = asyncio.create_task(api.submit("cat", wait=20))
    await until(messages)
    broker.flushdb()
    await lose_link(api, broker, until)
    await until(messages)
    row = (await api.http.get("/v1/jobs")).json()["data"]
    assert [job["status"] for job in row] == ["queued"]
    api.services.waiting.close()
    assert (await call).json()["id"] == row[0]["id"]


async def test_a_link_that_falls_silent_is_given_up(
    start_api: Start, settings: Settings, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PING_S", 0.1)
    target = urlsplit(settings.redis_url)
    silent = asyncio.Event()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if not silent.is_set():
                writer.write(data)
        writer.close()

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(target.hostname, target.port)
        await asyncio.gather(forward(reader, back), forward(there, writer))

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        api = await start_api(notify_url=f"redis://127.0.0.1:{port}{target.path}")
        await until(lambda: api.services.link.up)
        silent.set()
        await until(lambda: not api.services.link.up)
        silent.clear()
        await until(lambda: api.services.link.up)


async def test_what_ended_while_the_link_was_down_is_told_when_it_is_back(
    api: Api, database: Database, broker: redis.Redis, until: Until
) -> None:
    job = (await api.submit("cat")).json()
    poll = asyncio.create_task(api.http.get(job["urls"]["self"], params={"wait": 20}))
    await until(lambda: len(api.services.waiting))
    end = text("UPDATE jobs SET state = 'cancelled', version = version + 1, finished_at = now()")
    await asyncio.to_thread(database.run, lambda connection: connection.execute(end) and None)
    await lose_link(api, broker, until)
    assert (await poll).json()["status"] == "cancelled"


async def test_a_notice_that_cannot_be_read_is_passed_over(
    api: Api, broker: redis.Redis, caplog: pytest.LogCaptureFixture, until: Until
) -> None:
    job = (await api.submit("cat")).json()
    poll = asyncio.create_task(api.http.get(job["urls"]["self"], params={"wait": 20}))
    await until(lambda: len(api.services.waiting))
    broker.publish(keys.CHANGES, b"\xc1 nonsense")
    broker.publish(keys.CHANGES, b"\x01")
    broker.publish(keys.CHANGES, msgpack.packb([["an id in 16 char", "queued", 1, 0]]))
    broker.publish(keys.CHANGES, pack_changes([]))
    await api.http.post(job["urls"]["cancel"])
    assert (await poll).json()["status"] == "cancelled"
    assert "could not be read" in caplog.text
    assert api.services.link.up


async def test_without_a_broker_jobs_are_committed_and_told(start_api: Start) -> None:
    api = await start_api(broker_url=f"roost://{NOWHERE}/0")
    response = await api.submit("cat")
    assert response.status_code == 202
    waited = await api.submit("dog", wait=0.1)
    assert waited.status_code == 202
    assert (await api.http.get(waited.json()["urls"]["self"])).json()["status"] == "queued"
    cancelled = await api.http.post(response.json()["urls"]["cancel"])
    assert cancelled.json()["status"] == "cancelled"


async def test_a_direct_job_that_the_broker_refuses_is_kept_at_once(
    api: Api, database: Database, broker: redis.Redis, messages: Callable[[], int], until: Until
) -> None:
    await until(lambda: api.services.link.up)
    broker.config_set("maxmemory", "1")
    try:
        call = asyncio.create_task(api.submit("cat", wait=20))
        await until(lambda: database.run(counts))
        assert not call.done()
    finally:
        broker.config_set("maxmemory", "0")
    api.services.waiting.close()
    response = await call
    assert (response.status_code, response.json()["status"]) == (202, "queued")
    await until(messages)


async def test_without_a_database_nothing_is_accepted(start_api: Start, messages: Callable[[], int]) -> None:
    api = await start_api(database_url=f"postgresql://nobody@{NOWHERE}/none")
    api.services.database._patience_s = 0.1
    for response in (await api.submit("cat"), await api.http.get("/v1/jobs")):
        assert (response.status_code, response.json()["error"]["code"]) == (503, "store_unavailable")
        assert int(response.headers["retry-after"]) >= 1
    assert messages() == 0


async def test_without_a_database_a_wait_that_ends_tells_no_id(start_api: Start, until: Until) -> None:
    api = await start_api(database_url=f"postgresql://nobody@{NOWHERE}/none")
    api.services.database._patience_s = 0.1
    await until(lambda: api.services.link.up)
    response = await api.submit("cat", wait=0.1)
    assert response.status_code == 503
    assert "id" not in response.json()


async def test_connections_that_died_are_replaced_without_an_error(api: Api, database: Database) -> None:
    job = (await api.submit("cat")).json()
    kill = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'roost-api'")
    for _ in range(3):
        await asyncio.to_thread(database.run, lambda connection: connection.execute(kill) and None)
        responses = await asyncio.gather(
            *(api.http.get(job["urls"]["self"]) for _ in range(5)), *(api.submit(str(n)) for n in range(5))
        )
        assert {response.status_code for response in responses} == {200, 202}
