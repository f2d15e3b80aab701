"""Taking jobs in: 202 after the commit, 200 with the end within the wait, and what was told is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sqlalchemy import text

from api.schemas import JobObject, JobWithResult
from tasks.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.db import Database
    from tests.integration.api.conftest import Api, Consumer, Start, Until


async def test_a_job_is_committed_before_its_id_is_told(api: Api) -> None:
    response = await api.submit("a text", {"id": "b", "text": "another"}, tags=["x"], priority=7)
    assert response.status_code == 202
    job = JobObject.model_validate(response.json())
    assert (job.status, job.items, job.tags, job.priority) == ("queued", 2, ["x"], 7)
    assert response.headers["location"] == job.urls.self
    assert int(response.headers["retry-after"]) >= 1
    again = await api.http.get(job.urls.self)
    assert again.status_code == 200
    assert again.json() == response.json()


async def test_a_committed_job_has_one_message(api: Api, messages: Callable[[], int]) -> None:
    await api.submit("a text")
    await api.services.submitter.close()
    assert messages() == 1


async def test_a_job_that_nobody_waits_for_ends(api: Api, consumer: Consumer) -> None:
    job = (await api.submit("a text")).json()
    ended = await api.http.get(job["urls"]["self"], params={"wait": 10})
    assert ended.json()["status"] == "succeeded"


async def test_a_caller_that_waits_gets_the_result(api: Api, consumer: Consumer) -> None:
    response = await api.submit({"id": "a", "text": "cat"}, "dog", wait=10)
    assert response.status_code == 200
    assert response.headers["preference-applied"] == "wait=10"
    job = JobWithResult.model_validate(response.json())
    assert (job.status, job.items_failed) == ("succeeded", 0)
    assert job.result is not None
    assert [item.id for item in job.result.items] == ["a", None]
    assert all(item.dense is not None and item.dense.dims == 8 for item in job.result.items)


async def test_what_a_waiting_caller_was_told_can_be_fetched_again(api: Api, consumer: Consumer) -> None:
    told = (await api.submit("cat", wait=10)).json()
    result = told.pop("result")
    assert (await api.http.get(told["urls"]["self"])).json() == told
    assert (await api.http.get(told["urls"]["result"])).json() == result


async def test_a_waiting_callers_job_is_published_without_a_row(api: Api, idle_consumer: Consumer) -> None:
    call = asyncio.create_task(api.submit("cat", wait=10))
    await asyncio.to_thread(idle_consumer.wait_taken, 1)
    (job,) = idle_consumer.taken
    assert (job.stored, job.reply_to) == (False, api.services.instance)
    assert (await api.http.get(f"/v1/jobs/{job.id}")).status_code == 404
    idle_consumer.release()
    assert (await call).status_code == 200


async def test_a_wait_that_ends_early_gives_the_job_its_row_and_tells_the_id(
    api: Api, idle_consumer: Consumer, messages: Callable[[], int]
) -> None:
    response = await api.submit("cat", wait=0.2)
    assert response.status_code == 202
    job = response.json()
    assert job["status"] == "queued"
    assert (await api.http.get(job["urls"]["self"])).json() == job
    await api.services.submitter.close()
    assert messages() == 0, "the consumer holds its message, so no second one is sent"
    idle_consumer.release()
    ended = await api.http.get(job["urls"]["self"], params={"wait": 10})
    assert (ended.json()["status"], ended.json()["attempts"]) == ("succeeded", 1)
    assert len(idle_consumer.taken) == 1


async def test_a_job_whose_message_is_gone_when_the_wait_ends_is_sent_again(
    api: Api, broker: object, messages: Callable[[], int], until: Until
) -> None:
    call = asyncio.create_task(api.submit("cat", wait=0.3))
    await until(messages)
    broker.flushdb()  # type: ignore[attr-defined]
    assert (await call).status_code == 202
    await api.services.submitter.close()
    assert messages() == 1


async def test_inputs_too_large_for_a_message_are_stored_first(
    api: Api, messages: Callable[[], int], until: Until
) -> None:
    call = asyncio.create_task(api.submit("x" * 9000, wait=0.3))
    await until(messages)
    listed = (await api.http.get("/v1/jobs")).json()["data"]
    assert [job["status"] for job in listed] == ["queued"]
    assert (await call).json()["id"] == listed[0]["id"]


async def test_a_large_result_comes_from_its_row(api: Api, consumer: Consumer) -> None:
    consumer.edit = lambda index, row: {**row, "note": "x" * 1000}
    response = await api.submit(*["a text"] * 60, wait=10)
    assert response.status_code == 200
    assert len(response.content) > 60_000
    assert len(response.json()["result"]["items"]) == 60


async def test_respond_async_does_not_wait(api: Api) -> None:
    response = await api.submit("cat", headers={"Prefer": "respond-async"})
    assert (response.status_code, response.headers["preference-applied"]) == (202, "respond-async")


async def test_a_wait_is_cut_to_the_servers_limit(start_api: Start) -> None:
    api = await start_api(max_wait_s=0.1)
    response = await api.submit("cat", wait=1000)
    assert (response.status_code, response.headers["preference-applied"]) == (202, "wait=0.1")


async def test_too_many_submissions_at_once_are_told_to_come_again(start_api: Start) -> None:
    api = await start_api(max_queued=1)
    responses = await asyncio.gather(*(api.submit("cat") for _ in range(40)))
    refused = [response for response in responses if response.status_code == 429]
    assert {response.status_code for response in responses} == {202, 429}
    assert all(int(response.headers["retry-after"]) >= 1 for response in refused)
    assert refused[0].json()["error"]["code"] == "overloaded"


async def test_many_callers_each_get_their_own_result(api: Api, consumer: Consumer) -> None:
    responses = await asyncio.gather(*(api.submit({"id": str(n), "text": f"{n:08}"}, wait=10) for n in range(64)))
    assert {response.status_code for response in responses} == {200}
    for n, response in enumerate(responses):
        (item,) = response.json()["result"]["items"]
        assert item["id"] == str(n)
        assert (
            item["dense"]["values"]
            == (await api.http.get(response.json()["urls"]["result"])).json()["items"][0]["dense"]["values"]
        )


async def test_submissions_at_once_share_transactions(api: Api, database: Database) -> None:
    await api.submit("the first one connects")
    await asyncio.gather(*(api.submit(str(n)) for n in range(60)))
    count = text("SELECT count(*), count(DISTINCT xmin::text) FROM jobs")
    rows, transactions = database.run(lambda connection: tuple(connection.execute(count).one()))
    assert rows == 61
    assert transactions < 31


async def test_the_settings_of_a_profile_hold(api: Api, consumer: Consumer) -> None:
    response = await api.submit("cat", wait=10, model="org/model:small")
    assert response.json()["model"] == "org/model:small"
    assert response.json()["result"]["items"][0]["dense"]["dims"] == 2


async def test_a_stopping_process_tells_its_waiting_callers_where_their_jobs_stand(
    start_api: Start, settings: Settings, messages: Callable[[], int], until: Until
) -> None:
    api, other = await start_api(), await start_api()
    direct = asyncio.create_task(api.submit("cat", wait=20))
    await until(messages)
    stored = (await other.submit("dog")).json()
    polling = asyncio.create_task(api.http.get(stored["urls"]["self"], params={"wait": 20}))
    await until(lambda: len(api.services.waiting) == 2)
    api.services.waiting.close()
    response = await direct
    assert response.status_code == 202
    assert (await polling).json()["status"] == "queued"
    assert (await other.http.get(response.json()["urls"]["self"])).status_code == 200
