"""Jobs with `store` false: answered once, and then nothing of them is left but the row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import msgpack
import pytest
import redis

from api.schemas import JobObject
from tasks import keys
from tasks.blobs import Blobs
from tasks.contents import FOLDER
from tasks.db import Database
from tasks.settings import Settings
from tests.integration.api.conftest import Api, Consumer, Until

SECRET = "a-secret-that-stays-nowhere"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"blob_bytes": 16 * 1024})


@pytest.fixture
def rows(database: Database) -> Callable[[], list[str]]:
    """Every row of jobs, whole and as text."""

    def read() -> list[str]:
        statement = "SELECT jobs::text || encode(coalesce(inputs, '') || coalesce(result, ''), 'escape') FROM jobs"
        return database.run(lambda conn: list(conn.exec_driver_sql(statement).scalars()))

    return read


@pytest.fixture
def traces(rows: Callable[[], list[str]], broker: redis.Redis, settings: Settings) -> Callable[[], int]:
    """How many places hold what was sent, or what came of it: rows, keys of Valkey, blobs."""

    def count() -> int:
        held = [broker.dump(key) or b"" for key in broker.scan_iter("*")]
        blobs = Blobs(settings.blobs_url).keys(FOLDER)
        return sum(SECRET in row for row in rows()) + sum(SECRET.encode() in one for one in held) + len(blobs)

    return count


def echo(index: int, row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "text": SECRET}


@pytest.mark.parametrize("size", [1, 2000], ids=["in rows", "in blobs"])
async def test_a_waiting_call_is_answered_and_nothing_is_left(
    api: Api, consumer: Consumer, traces: Callable[[], int], rows: Callable[[], list[str]], until: Until, size: int
) -> None:
    consumer.edit = lambda index, row: {**row, "text": SECRET * size}
    told = await api.submit(SECRET * size, wait=10, store=False, options={"instruction": SECRET})
    job = JobObject.model_validate({name: value for name, value in told.json().items() if name != "result"})
    assert (told.json()["result"]["items"][0]["text"], job.store) == (SECRET * size, False)
    await until(lambda: traces() == 0)
    assert len(rows()) == 1
    seen = (await api.http.get(f"/v1/jobs/{job.id}")).json()
    assert (seen["status"], seen["usage"], seen["options"]) == ("succeeded", told.json()["usage"], {})
    gone = await api.http.get(job.urls.result)
    assert (gone.status_code, gone.json()["error"]["code"]) == (410, "result_not_stored")
    refused = await api.http.post(job.urls.retry)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_retryable")


async def test_the_first_whole_fetch_is_the_last_and_what_is_kept_meanwhile_is_the_result(
    api: Api, consumer: Consumer, traces: Callable[[], int], rows: Callable[[], list[str]]
) -> None:
    consumer.edit = echo
    job = (await api.submit("cat", store=False)).json()
    await api.http.get(job["urls"]["self"], params={"wait": 10})
    assert traces() == 1
    first = await api.http.get(job["urls"]["result"], headers={"Accept": "application/msgpack"})
    assert msgpack.unpackb(first.content)["items"][0]["text"] == SECRET
    assert traces() == 0
    again = await api.http.get(job["urls"]["result"])
    assert (again.status_code, again.json()["error"]["code"]) == (410, "result_not_stored")


async def test_a_caller_who_leaves_before_the_end_of_the_result_can_ask_again(api: Api, consumer: Consumer) -> None:
    # More than the network takes in advance.
    consumer.edit = lambda index, row: {**row, "text": "x" * 2**25}
    job = (await api.submit("cat", store=False)).json()
    await api.http.get(job["urls"]["self"], params={"wait": 10})
    async with httpx.AsyncClient(base_url=api.url) as client, client.stream("GET", job["urls"]["result"]) as reply:
        assert reply.status_code == 200
    whole = await api.http.get(job["urls"]["result"])
    assert (whole.status_code, len(whole.json()["items"][0]["text"])) == (200, 2**25)
    assert (await api.http.get(job["urls"]["result"])).status_code == 410


async def test_no_link_shows_it_as_often_as_one_likes(api: Api, consumer: Consumer) -> None:
    chunks = {}
    for store in (True, False):
        job = (await api.submit("cat", store=store)).json()
        await api.http.get(job["urls"]["self"], params={"wait": 10})
        seen = await api.http.get(job["urls"]["self"], headers={"X-SIE-SDK-Version": "0.10.1"})
        (chunks[store],) = seen.json()["output"]["chunks"]
    assert (chunks[True]["ref"] is None, chunks[False]["ref"], chunks[False]["state"]) == (False, None, "succeeded")


async def test_a_repeat_under_its_key_is_told_that_the_result_is_gone(api: Api, consumer: Consumer) -> None:
    key = {"Idempotency-Key": "k"}
    first = await api.submit("cat", wait=10, store=False, headers=key)
    again = await api.submit("cat", wait=10, store=False, headers=key)
    kept = await api.submit("cat", wait=10, headers=key)
    assert first.json()["status"] == "succeeded"
    assert (again.status_code, again.json()["error"]["code"]) == (410, "result_not_stored")
    assert (kept.status_code, kept.json()["error"]["code"]) == (409, "idempotency_conflict")


async def test_a_cancelled_job_leaves_no_inputs(
    api: Api, idle_consumer: Consumer, rows: Callable[[], list[str]]
) -> None:
    job = (await api.submit(SECRET, store=False)).json()
    assert SECRET in rows()[0]
    await api.http.post(job["urls"]["cancel"])
    assert SECRET not in rows()[0]


async def test_a_wait_that_ends_first_leaves_the_result_for_a_fetch(
    api: Api, idle_consumer: Consumer, traces: Callable[[], int]
) -> None:
    idle_consumer.edit = echo
    job = (await api.submit("cat", wait=0.2, store=False)).json()
    assert job["status"] == "queued"
    idle_consumer.release()
    await api.http.get(job["urls"]["self"], params={"wait": 10})
    assert (await api.http.get(job["urls"]["result"])).json()["items"][0]["text"] == SECRET
    assert traces() == 0


async def test_a_failed_job_tells_why_each_time_and_its_items_once(api: Api, consumer: Consumer) -> None:
    job = (await api.submit("", store=False)).json()
    await api.http.get(job["urls"]["self"], params={"wait": 10})
    first, second = [(await api.http.get(job["urls"]["result"])).json() for _ in range(2)]
    assert first["error"] == second["error"]
    assert (len(first["items"]), second["items"]) == (1, None)


async def test_no_word_of_it_is_in_the_reply_channel_of_others_or_in_the_log(
    api: Api, consumer: Consumer, broker: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    consumer.edit = echo
    with broker.pubsub() as heard:  # type: ignore[no-untyped-call]
        heard.subscribe(keys.CHANGES)
        await api.submit(SECRET, wait=10, store=False)
        said = [await asyncio.to_thread(heard.get_message, timeout=5) for _ in range(2)]
    assert all(SECRET.encode() not in bytes(message["data"]) for message in said if isinstance(message["data"], bytes))
    assert SECRET not in caplog.text


async def test_store_must_be_true_or_false(api: Api) -> None:
    refused = await api.submit("cat", store="no")
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "store")
