"""Cancel, retry, and lists."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tasks import keys

if TYPE_CHECKING:
    import redis

    from tests.integration.api.conftest import Api, Consumer, Until


async def test_a_queued_job_is_cancelled_at_once(api: Api, broker: redis.Redis) -> None:
    job = (await api.submit("cat")).json()
    response = await api.http.post(job["urls"]["cancel"])
    assert (response.status_code, response.json()["status"]) == (200, "cancelled")
    assert response.json()["expires_at"] is not None
    await api.services.submitter.close()
    assert broker.zscore(keys.CANCELLED, job["id"]) is not None


async def test_a_job_in_a_workers_hands_gets_no_result_after_its_cancel(api: Api, idle_consumer: Consumer) -> None:
    job = (await api.submit("cat")).json()
    await asyncio.to_thread(idle_consumer.wait_taken, 1)
    await api.http.post(job["urls"]["cancel"])
    idle_consumer.release()
    await api.submit("a later job that runs behind it", wait=10)
    assert (await api.http.get(job["urls"]["self"])).json()["status"] == "cancelled"
    assert (await api.http.get(job["urls"]["result"])).status_code == 409


async def test_cancelling_twice_is_answered_alike(api: Api) -> None:
    job = (await api.submit("cat")).json()
    first, second = [await api.http.post(job["urls"]["cancel"]) for _ in range(2)]
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json()


async def test_an_ended_job_cannot_be_cancelled(api: Api, consumer: Consumer) -> None:
    job = (await api.submit("cat", wait=10)).json()
    response = await api.http.post(job["urls"]["cancel"])
    assert (response.status_code, response.json()["error"]["code"]) == (409, "already_finished")


async def test_a_cancel_wakes_who_waits(api: Api, until: Until) -> None:
    job = (await api.submit("cat")).json()
    poll = asyncio.create_task(api.http.get(job["urls"]["self"], params={"wait": 20}))
    await until(lambda: len(api.services.waiting))
    began = asyncio.get_running_loop().time()
    await api.http.post(job["urls"]["cancel"])
    assert (await poll).json()["status"] == "cancelled"
    assert asyncio.get_running_loop().time() - began < 1.5, "a wake, not the slow look at the row"


async def test_a_cancelled_job_runs_when_it_is_tried_again(api: Api, idle_consumer: Consumer) -> None:
    job = (await api.submit("cat")).json()
    await asyncio.to_thread(idle_consumer.wait_taken, 1)
    await api.http.post(job["urls"]["cancel"])
    response = await api.http.post(job["urls"]["retry"])
    assert (response.status_code, response.json()["status"]) == (202, "queued")
    idle_consumer.release()
    ended = await api.http.get(job["urls"]["self"], params={"wait": 10})
    assert ended.json()["status"] == "succeeded"
    assert (await api.http.get(job["urls"]["result"])).status_code == 200


async def test_only_a_job_that_did_not_succeed_is_tried_again(api: Api, consumer: Consumer) -> None:
    queued = (await api.submit("cat", wait=10)).json()
    response = await api.http.post(queued["urls"]["retry"])
    assert (response.status_code, response.json()["error"]["code"]) == (409, "not_retryable")


async def listed(api: Api, **query: Any) -> list[str]:
    response = await api.http.get("/v1/jobs", params=query)
    assert response.status_code == 200, response.text
    return [job["id"] for job in response.json()["data"]]


async def test_a_list_is_newest_first_and_its_filters_hold(api: Api) -> None:
    plain = (await api.submit("a")).json()["id"]
    bulk = (await api.submit("b", lane="bulk", tags=["x", "y"])).json()["id"]
    other = (await api.submit("c", model="org/plain", tags=["y"])).json()["id"]
    await api.http.post(f"/v1/jobs/{plain}/cancel")
    assert await listed(api) == [other, bulk, plain]
    assert await listed(api, lane="bulk") == [bulk]
    assert await listed(api, tag="y") == [other, bulk]
    assert await listed(api, model="org/plain") == [other]
    assert await listed(api, status="cancelled") == [plain]
    assert await listed(api, status="queued", verb="encode") == [other, bulk]
    assert await listed(api, tag="y", lane="interactive", status="failed") == []


async def test_pages_hold_each_job_once_while_new_ones_come_in(api: Api) -> None:
    ids = [(await api.submit(str(n))).json()["id"] for n in range(7)]
    seen, cursor = [], None
    while True:
        page = (await api.http.get("/v1/jobs", params={"limit": 3} | ({"cursor": cursor} if cursor else {}))).json()
        seen += [job["id"] for job in page["data"]]
        cursor = page["next_cursor"]
        assert page["has_more"] is (cursor is not None)
        if cursor is None:
            break
        await api.submit("new")
    assert seen == ids[::-1]
