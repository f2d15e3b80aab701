"""Calls of other dialects as jobs: what becomes of the work when its caller leaves, waits too long, or comes again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import redis
from sqlalchemy import text

from api.compat import calls
from api.media import Media, dumps_in_pieces
from catalog.loader import Catalog
from catalog.schema import GenerateFacts, Spec, Tasks
from tasks import keys
from tasks.db import Database
from tests.integration.api.conftest import Api, Consumer, Start, Until

BODY = {"model": "org/model", "input": "cat", "encoding_format": "float"}


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """One that generates beside the others."""
    writes = Tasks(generate=GenerateFacts(max_new_tokens=4))
    writer = Spec(
        id="org/writer",
        family="fake_generator",
        tasks=writes,
        inputs=("text", "messages"),
        parameters=0,
        max_length=64,
    )
    return Catalog([*catalog.specs, writer])


async def embed(api: Api, headers: dict[str, str] | None = None, **changes: Any) -> httpx.Response:
    return await api.http.post("/v1/embeddings", json={**BODY, **changes}, headers=headers)


@pytest.fixture
def short_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "HOLD_S", 0.3)


@pytest.mark.usefixtures("consumer")
async def test_a_call_is_a_job_that_its_reply_names(api: Api) -> None:
    answer = await embed(api)
    assert answer.status_code == 200, answer.text
    job = (await api.http.get(f"/v1/jobs/{answer.headers['x-roost-job-id']}")).json()
    assert (job["verb"], job["model"], job["status"]) == ("encode", "org/model", "succeeded")
    result = (await api.http.get(job["urls"]["result"])).json()
    assert result["items"][0]["dense"]["values"] == answer.json()["data"][0]["embedding"]


async def test_a_caller_that_leaves_takes_the_work_along(
    api: Api, idle_consumer: Consumer, broker: redis.Redis, until: Until
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.4):
            await embed(api)
    await until(lambda: len(api.services.waiting) == 0)
    (job,) = idle_consumer.taken
    await until(lambda: broker.zscore(keys.CANCELLED, str(job.id)) is not None)


async def test_large_work_of_a_caller_that_leaves_is_cancelled_in_its_row(
    api: Api, database: Database, until: Until, messages: Callable[[], int]
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.6):
            await embed(api, input=["a long text " * 900])
    await until(lambda: len(api.services.waiting) == 0)
    assert messages() == 1, "the work was not stored and sent before its caller left"
    await until(lambda: _states(database) == ["cancelled"])


def _states(database: Database) -> list[str]:
    return database.run(lambda connection: list(connection.scalars(text("SELECT state FROM jobs"))))


async def test_with_a_key_the_work_goes_on_and_the_repeat_gets_it(
    api: Api, idle_consumer: Consumer, until: Until
) -> None:
    headers = {"Idempotency-Key": "k"}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.4):
            await embed(api, headers)
    await until(lambda: len(api.services.waiting) == 0)
    idle_consumer.release()
    again = await embed(api, headers)
    assert again.status_code == 200
    assert again.headers["x-roost-job-id"] == str(idle_consumer.taken[0].id)
    assert len(idle_consumer.taken) == 1


@pytest.mark.usefixtures("short_hold")
async def test_a_wait_that_ends_first_tells_the_job_and_the_repeat_waits_for_it(
    api: Api, idle_consumer: Consumer
) -> None:
    first = await embed(api)
    assert first.status_code == 504
    assert first.headers["retry-after"] == "1"
    error = first.json()["error"]
    assert error["code"] == "still_running"
    assert error["job_id"] == first.headers["x-roost-job-id"]
    assert (await api.http.get(f"/v1/jobs/{error['job_id']}")).json()["status"] == "queued"
    second = await embed(api)
    assert second.status_code == 504
    idle_consumer.release()
    third = await embed(api)
    assert third.status_code == 200
    assert {answer.headers["x-roost-job-id"] for answer in (first, second, third)} == {error["job_id"]}
    assert len(idle_consumer.taken) == 1, "the same work was sent twice"


@pytest.mark.usefixtures("short_hold")
@pytest.mark.parametrize(
    "end",
    ["DELETE FROM jobs", "UPDATE jobs SET state = 'failed'", "UPDATE jobs SET state = 'succeeded', expires_at = now()"],
    ids=["gone", "failed", "expired"],
)
async def test_a_repeat_starts_anew_where_the_first_one_has_nothing_to_give(
    api: Api, database: Database, idle_consumer: Consumer, end: str
) -> None:
    first = await embed(api)
    database.run(lambda connection: connection.execute(text(end)).rowcount)
    second = await embed(api)
    assert second.headers["x-roost-job-id"] != first.headers["x-roost-job-id"]


async def test_who_leaves_while_it_waits_again_takes_the_work_along(
    api: Api, idle_consumer: Consumer, broker: redis.Redis, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as short:
        short.setattr(calls, "HOLD_S", 0.3)
        first = await embed(api)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.4):
            await embed(api)
    await until(lambda: broker.zscore(keys.CANCELLED, first.headers["x-roost-job-id"]) is not None)


@pytest.mark.usefixtures("consumer")
async def test_a_large_reply_is_the_same_as_its_rows(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = (await embed(api, input=["cat", "dog"])).json()
    monkeypatch.setattr(calls, "OFF_LOOP_BYTES", 1)
    assert (await embed(api, input=["cat", "dog"])).json() == whole


@pytest.mark.usefixtures("consumer")
@pytest.mark.parametrize(
    ("path", "body", "accept"),
    [
        ("/v1/embeddings", {"model": "org/model", "input": ["cat"]}, "application/json"),
        ("/v1/encode/org/model", {"items": [{"text": "cat"}]}, "application/json"),
        ("/v1/encode/org/model", {"items": [{"text": "cat"}]}, "application/msgpack"),
        ("/tei/org/model/embed", {"inputs": ["cat"]}, "application/json"),
    ],
)
async def test_a_large_reply_is_never_written_on_the_event_loop(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], accept: str
) -> None:
    small = await api.http.post(path, json=body, headers={"accept": accept})
    assert (small.status_code, small.headers["content-type"]) == (200, accept)
    threads: list[int] = []

    def seen(value: object, media: Media) -> bytes:
        threads.append(threading.get_ident())
        return dumps_in_pieces(value, media)

    monkeypatch.setattr(calls, "OFF_LOOP_BYTES", 1)
    monkeypatch.setattr(calls, "dumps_in_pieces", seen)
    large = await api.http.post(path, json=body, headers={"accept": accept})
    assert (large.status_code, large.headers.keys()) == (200, small.headers.keys())
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


def test_a_call_is_held_for_longer_than_a_load_and_less_than_clients_wait() -> None:
    assert calls.HOLD_S == 140


@pytest.mark.usefixtures("short_hold")
async def test_who_asks_for_something_else_gets_a_job_of_its_own(api: Api, idle_consumer: Consumer) -> None:
    first = await embed(api)
    other = await embed(api, input="dog")
    assert first.headers["x-roost-job-id"] != other.headers["x-roost-job-id"]


@pytest.mark.usefixtures("consumer")
async def test_errors_name_the_fields_of_the_body_that_was_sent(api: Api) -> None:
    answer = await embed(api, input=["cat", " "])
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input[1]"


async def test_a_process_that_ends_keeps_the_work_and_says_where(
    start_api: Start, idle_consumer: Consumer, until: Until
) -> None:
    api = await start_api()
    call = asyncio.create_task(embed(api))
    await until(lambda: bool(idle_consumer.taken))
    api.services.waiting.close()
    answer = await call
    assert answer.status_code == 504
    assert answer.json()["error"]["job_id"] == str(idle_consumer.taken[0].id)


async def test_a_stream_that_ends_with_its_process_says_so(
    start_api: Start, idle_consumer: Consumer, until: Until
) -> None:
    api = await start_api()
    body = {"model": "org/writer", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    call = asyncio.create_task(api.http.post("/v1/chat/completions", json=body))
    await until(lambda: bool(idle_consumer.taken))
    api.services.waiting.close()
    answer = await call
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert "about to end" in answer.json()["error"]["message"]


async def test_which_of_two_keys_counts_is_not_guessed(api: Api) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    answer = await api.http.post("/v1/embeddings", json=BODY, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "Idempotency-Key"


@pytest.mark.usefixtures("consumer")
async def test_a_call_that_was_not_taken_in_names_no_job(api: Api) -> None:
    headers = {"Idempotency-Key": "k"}
    taken = await embed(api, headers)
    refused = await embed(api, headers, input="dog")
    assert "x-roost-job-id" in taken.headers
    assert refused.status_code == 409
    assert "x-roost-job-id" not in refused.headers
