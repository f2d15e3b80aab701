"""The publisher against a real Valkey: what it promises its callers, and what it says when the broker cannot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
import redis

from deploy.embedded.ports import free_port
from deploy.embedded.valkey import ValkeyServer
from tasks import keys
from tasks.dispatch import Publisher
from tasks.errors import BrokerUnavailable
from tasks.messages import Submission
from tasks.settings import Settings, plain_redis

NewJob = Callable[..., Submission]


@pytest.fixture
def client(broker_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(plain_redis(broker_url)) as client:
        yield client


@pytest.fixture
def settings(broker_url: str) -> Settings:
    return Settings(broker_url=broker_url)


@pytest.fixture
async def publisher(settings: Settings) -> AsyncIterator[Publisher]:
    publisher = Publisher(settings)
    yield publisher
    await publisher.aclose()


async def test_published_jobs_lie_in_their_queues_and_are_held(
    client: redis.Redis, publisher: Publisher, new_job: NewJob
) -> None:
    jobs = [new_job(bucket=bucket) for bucket in ("xs", "xs", "m")]
    await publisher.publish(jobs)
    assert [client.llen(keys.messages(f"interactive.{bucket}", "roost/fake")) for bucket in ("xs", "m")] == [2, 1]
    assert [client.llen(keys.tally(f"interactive.{bucket}")) for bucket in ("xs", "m")] == [2, 1]
    assert client.zrange(keys.models("interactive.m"), 0, -1) == [b"roost/fake"]
    assert await publisher.held([*(job.id for job in jobs), UUID(int=99)]) == {job.id for job in jobs}


async def test_each_queue_s_bell_is_rung_and_keeps_few_tokens(
    client: redis.Redis, publisher: Publisher, new_job: NewJob
) -> None:
    for _ in range(20):
        await publisher.publish([new_job()])
    assert client.llen(keys.bell("interactive.xs")) == 8


async def test_the_blocking_twins_do_the_same(client: redis.Redis, publisher: Publisher, new_job: NewJob) -> None:
    one, two = new_job(), new_job()
    await publisher.publish([one])
    publisher.publish_now([two])
    assert publisher.held_now([one.id, two.id]) == await publisher.held([one.id, two.id]) == {one.id, two.id}
    first, second = client.lrange(keys.messages("interactive.xs", "roost/fake"), 0, -1)
    assert len(first) == len(second)


async def test_nothing_given_is_nothing_done(client: redis.Redis, publisher: Publisher) -> None:
    await publisher.publish([])
    publisher.publish_now([])
    await publisher.forget([])
    assert await publisher.held([]) == publisher.held_now([]) == set()
    assert not client.keys()


async def test_a_cancel_is_remembered_for_a_day_and_older_ones_forgotten(
    client: redis.Redis, publisher: Publisher, new_job: NewJob
) -> None:
    client.zadd(keys.CANCELLED, {"old": time.time() - 1})
    job = new_job()
    await publisher.forget([job.id])
    assert client.zrange(keys.CANCELLED, 0, -1) == [str(job.id).encode()]
    assert client.zscore(keys.CANCELLED, str(job.id)) == pytest.approx(time.time() + 86_400, abs=60)


@pytest.mark.parametrize(("history", "kept"), [({"fence": 2}, False), ({"checked": True}, False), ({}, True)])
async def test_only_a_job_with_a_history_takes_its_cancel_back(
    client: redis.Redis, publisher: Publisher, new_job: NewJob, history: dict[str, object], kept: bool
) -> None:
    job = new_job(**history)
    await publisher.forget([job.id])
    await publisher.publish([job])
    assert (client.zscore(keys.CANCELLED, str(job.id)) is not None) is kept


async def test_a_broker_that_is_away_is_said_to_be(new_job: NewJob) -> None:
    publisher = Publisher(Settings(broker_url=f"roost://127.0.0.1:{free_port()}/0"))
    job = new_job()
    for attempt in (publisher.publish([job]), publisher.held([job.id]), publisher.forget([job.id])):
        with pytest.raises(BrokerUnavailable):
            await attempt
    with pytest.raises(BrokerUnavailable):
        publisher.publish_now([job])
    with pytest.raises(BrokerUnavailable):
        publisher.held_now([job.id])
    await publisher.aclose()


async def test_a_server_that_may_not_be_written_to_is_unavailable(tmp_path: Path, new_job: NewJob) -> None:
    server = ValkeyServer(tmp_path / "valkey", tmp_path / "valkey.log")
    server.start()
    publisher = Publisher(Settings(broker_url=server.url()))
    try:
        with redis.Redis.from_url(server.url(scheme="redis")) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))
        with pytest.raises(BrokerUnavailable):
            await publisher.publish([new_job()])
    finally:
        await publisher.aclose()
        server.stop()


async def test_a_connection_that_died_while_idle_is_made_anew(
    client: redis.Redis, publisher: Publisher, new_job: NewJob
) -> None:
    await publisher.publish([new_job()])
    publisher.publish_now([new_job()])

    def cut() -> None:
        client.client_kill_filter(_type="normal", skipme=True)
        while len(client.client_list()) > 1:
            client.ping()

    await asyncio.to_thread(cut)
    await publisher.publish([new_job()])
    publisher.publish_now([new_job()])
    assert client.llen(keys.tally("interactive.xs")) == 4


async def test_a_stock_transport_gets_celery_s_own_messages_and_cannot_tell_what_it_holds(
    client: redis.Redis, new_job: NewJob, broker_url: str
) -> None:
    publisher = Publisher(Settings(broker_url=plain_redis(broker_url)))
    jobs = [new_job(), new_job()]
    await publisher.publish(jobs)
    assert client.llen("interactive.xs") == 2
    assert await publisher.held([jobs[0].id]) is None
    assert publisher.held_now([jobs[0].id]) is None
    await publisher.forget([jobs[0].id])
    await publisher.aclose()
