"""One key, one job, whatever the number of processes and however close together the requests come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.api.conftest import Api, Consumer, Start, Until

KEY = {"Idempotency-Key": "order 7"}


async def test_twenty_posts_at_once_on_two_processes_make_one_job(
    start_api: Start, messages: Callable[[], int]
) -> None:
    one, other = await start_api(), await start_api()
    responses = await asyncio.gather(*((one, other)[n % 2].submit("cat", headers=KEY) for n in range(20)))
    assert {response.status_code for response in responses} == {202}
    assert len({response.json()["id"] for response in responses}) == 1
    assert sum("idempotent-replayed" not in response.headers for response in responses) == 1
    await one.services.submitter.close()
    await other.services.submitter.close()
    assert messages() == 1


async def test_another_body_under_the_same_key_is_a_conflict(api: Api) -> None:
    first = await api.submit("cat", headers=KEY)
    second = await api.submit("dog", headers=KEY)
    assert first.status_code == 202
    assert second.status_code == 409
    assert second.json()["error"]["code"] == "idempotency_conflict"


async def test_the_same_meaning_in_other_words_is_no_conflict(api: Api) -> None:
    first = await api.submit("cat", headers=KEY)
    second = await api.submit({"text": "cat"}, headers=KEY, priority=5, lane="interactive")
    assert second.json()["id"] == first.json()["id"]


async def test_a_repeat_after_the_end_gets_the_result(api: Api, consumer: Consumer) -> None:
    first = await api.submit("cat", headers=KEY, wait=10)
    second = await api.submit("cat", headers=KEY)
    assert (first.status_code, second.status_code) == (200, 200)
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert second.json() == first.json()


async def test_a_repeat_may_wait_for_the_first_ones_end(api: Api, idle_consumer: Consumer, until: Until) -> None:
    first = await api.submit("cat", headers=KEY)
    second = asyncio.create_task(api.submit("cat", headers=KEY, wait=10))
    await until(lambda: len(api.services.waiting))
    idle_consumer.release()
    response = await second
    assert (response.status_code, response.json()["id"]) == (200, first.json()["id"])
    assert response.json()["result"]["items"]


async def test_a_repeat_that_waits_beside_the_first_is_told_of_the_same_job(
    api: Api, idle_consumer: Consumer, until: Until
) -> None:
    first = asyncio.create_task(api.submit("cat", headers=KEY, wait=20))
    await until(lambda: len(api.services.waiting) == 1)
    await asyncio.to_thread(idle_consumer.wait_taken, 1)
    second = asyncio.create_task(api.submit("cat", headers=KEY, wait=20))
    (job,) = idle_consumer.taken
    await until(lambda: len(api.services.waiting._waiters.get(job.id, ())) == 2)
    idle_consumer.release()
    told = (await first).json()
    assert (await second).json() == told
    assert told["id"] == str(job.id)


async def test_a_failed_job_keeps_its_key(api: Api, consumer: Consumer) -> None:
    first = await api.submit("", headers=KEY, wait=10)
    second = await api.submit("", headers=KEY, wait=10)
    assert (first.json()["status"], second.json()["id"]) == ("failed", first.json()["id"])
    assert second.headers["idempotent-replayed"] == "true"


async def test_other_keys_make_other_jobs(api: Api) -> None:
    responses = await asyncio.gather(*(api.submit("cat", headers={"Idempotency-Key": str(n)}) for n in range(5)))
    assert len({response.json()["id"] for response in responses}) == 5
