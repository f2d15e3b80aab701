"""Long polls: woken at the end of the job, cut in time, and nothing is held while they wait."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from tasks import keys

if TYPE_CHECKING:
    import redis

    from tasks.db import Database
    from tests.integration.api.conftest import Api, Consumer, Start, Until


async def test_a_poll_on_another_process_is_woken_at_the_end(
    start_api: Start, idle_consumer: Consumer, until: Until
) -> None:
    one, other = await start_api(), await start_api()
    job = (await one.submit("cat")).json()
    poll = asyncio.create_task(other.http.get(job["urls"]["self"], params={"wait": 20}))
    await until(lambda: len(other.services.waiting))
    idle_consumer.release()
    began = time.monotonic()
    assert (await poll).json()["status"] == "succeeded"
    assert time.monotonic() - began < 1.5, "a wake, not the slow look at the row"


async def test_a_poll_of_an_ended_job_returns_at_once(api: Api, consumer: Consumer) -> None:
    job = (await api.submit("cat", wait=10)).json()
    began = time.monotonic()
    await api.http.get(job["urls"]["self"], params={"wait": 20})
    assert time.monotonic() - began < 5


async def test_a_poll_ends_in_time_with_the_job_as_it_is(api: Api) -> None:
    job = (await api.submit("cat")).json()
    response = await api.http.get(job["urls"]["self"], params={"wait": 0.1})
    assert (response.status_code, response.json()["status"]) == (200, "queued")


async def test_a_hundred_waits_hold_no_database_connection(
    start_api: Start, idle_consumer: Consumer, until: Until
) -> None:
    api = await start_api(pool_size=2)
    calls = [asyncio.create_task(api.submit(str(n), wait=20)) for n in range(50)]
    job = (await api.submit("cat")).json()
    calls += [asyncio.create_task(api.http.get(job["urls"]["self"], params={"wait": 20})) for _ in range(50)]
    await until(lambda: len(api.services.waiting) == 100)
    for path in ("/v1/jobs", job["urls"]["self"], "/healthz"):
        began = time.monotonic()
        assert (await api.http.get(path)).status_code == 200
        assert time.monotonic() - began < 1.0
    idle_consumer.release()
    assert {response.status_code for response in await asyncio.gather(*calls)} == {200}


async def test_a_caller_that_leaves_frees_its_place_and_its_job_is_dropped(
    api: Api, idle_consumer: Consumer, broker: redis.Redis, until: Until
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.4):
            await api.submit("cat", wait=20)
    await until(lambda: len(api.services.waiting) == 0)
    (job,) = idle_consumer.taken
    await until(lambda: broker.zscore(keys.CANCELLED, str(job.id)) is not None)


async def test_a_stored_job_goes_on_when_its_caller_leaves(api: Api, idle_consumer: Consumer, until: Until) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.4):
            await api.submit("cat", wait=20, headers={"Idempotency-Key": "k"})
    await until(lambda: len(api.services.waiting) == 0)
    idle_consumer.release()
    again = await api.submit("cat", wait=10, headers={"Idempotency-Key": "k"})
    assert again.json()["status"] == "succeeded"


async def test_a_poller_that_leaves_frees_its_place(api: Api, until: Until) -> None:
    job = (await api.submit("cat")).json()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.4):
            await api.http.get(job["urls"]["self"], params={"wait": 20})
    await until(lambda: len(api.services.waiting) == 0)


async def test_an_end_that_nobody_told_of_is_found_by_the_slow_look(
    api: Api, idle_consumer: Consumer, database: Database, until: Until
) -> None:
    job = (await api.submit("cat")).json()
    poll = asyncio.create_task(api.http.get(job["urls"]["self"], params={"wait": 20}))
    await until(lambda: len(api.services.waiting))
    end = text("UPDATE jobs SET state = 'cancelled', version = version + 1, finished_at = now()")
    await asyncio.to_thread(database.run, lambda connection: connection.execute(end) and None)
    assert (await poll).json()["status"] == "cancelled"
