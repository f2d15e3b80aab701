"""Large inputs and results: in the blob store, in no row and in no message, and gone when their job is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from tasks import keys
from tasks.blobs import Blobs
from tasks.contents import FOLDER
from tasks.db import Database
from tasks.settings import Settings
from tests.integration.api.conftest import Api, Consumer, Start, Until

LARGE = ["x" * 5000] * 60
"""More than `blob_bytes`: the settings of these tests take the least."""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"blob_bytes": 16 * 1024, "max_text_chars": 10_000})


@pytest.fixture
def left(settings: Settings) -> Callable[[], list[str]]:
    """The blobs of jobs that are in the store."""
    return lambda: Blobs(settings.blobs_url).keys(FOLDER)


def rows(database: Database) -> list[tuple[Any, ...]]:
    """What is kept where: whether inputs and result are in the row, and whether they are in blobs."""
    statement = (
        "SELECT inputs IS NOT NULL, inputs_blob IS NOT NULL, result IS NOT NULL, result_blob IS NOT NULL FROM jobs"
    )
    return database.run(lambda conn: [tuple(row) for row in conn.exec_driver_sql(statement)])


def fat(index: int, row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "text": "y" * 20_000}


@pytest.mark.parametrize("wait", [0, 10])
async def test_large_inputs_and_results_are_in_the_store_alone(
    api: Api,
    consumer: Consumer,
    database: Database,
    broker: redis.Redis,
    left: Callable[[], list[str]],
    until: Until,
    wait: float,
) -> None:
    consumer.edit = fat
    consumer.hold()
    asking = asyncio.create_task(api.submit(*LARGE, wait=wait))
    await asyncio.to_thread(consumer.wait_taken, 1)
    taken = consumer.taken[0]
    assert rows(database) == [(False, True, False, False)]
    assert len(left()) == 1
    lying = sum(int(broker.memory_usage(key) or 0) for key in broker.scan_iter("*"))
    assert lying < 16 * 1024
    consumer.release()
    answer = await asking
    job = (await api.http.get(f"/v1/jobs/{taken.id}", params={"wait": 10})).json()

    assert rows(database) == [(False, True, False, True)]
    first, second = [await api.http.get(job["urls"]["result"]) for _ in range(2)]
    assert first.status_code == 200
    assert first.content == second.content
    assert [len(item["text"]) for item in first.json()["items"]] == [20_000] * 60
    if wait:
        assert answer.json()["result"] == first.json()


async def test_a_deleted_job_takes_its_blobs_along_at_once(
    api: Api, consumer: Consumer, left: Callable[[], list[str]], database: Database
) -> None:
    consumer.edit = fat
    job = (await api.submit(*LARGE, wait=10)).json()
    assert len(left()) == 2

    deleted = await api.http.delete(f"/v1/jobs/{job['id']}")

    assert (deleted.status_code, deleted.json()) == (200, {"id": job["id"], "object": "job", "deleted": True})
    assert left() == []
    assert rows(database) == []
    assert {(await api.http.get(job["urls"][name])).status_code for name in ("self", "result", "events")} == {404}
    assert (await api.http.delete(f"/v1/jobs/{job['id']}")).status_code == 404


async def test_an_open_job_is_not_deleted(api: Api) -> None:
    job = (await api.submit("cat")).json()
    refused = await api.http.delete(f"/v1/jobs/{job['id']}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "job_not_terminal")


async def test_a_repeat_under_a_key_leaves_no_second_blob(
    api: Api, consumer: Consumer, left: Callable[[], list[str]]
) -> None:
    answers = [await api.submit(*LARGE, wait=10, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert len(left()) == 1


async def test_with_the_store_away_nothing_is_accepted(
    api: Api, settings: Settings, database: Database, messages: Callable[[], int]
) -> None:
    await asyncio.to_thread(Path(settings.blobs_url).write_text, "a file where the folder was")
    refused = await api.submit(*LARGE)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_unavailable")
    assert "retry-after" in refused.headers
    assert rows(database) == []
    assert messages() == 0
    assert (await api.submit("small")).status_code == 202


async def test_a_result_whose_blob_is_gone_says_so(
    api: Api, consumer: Consumer, left: Callable[[], list[str]], settings: Settings
) -> None:
    consumer.edit = fat
    job = (await api.submit("cat", wait=10)).json()
    Blobs(settings.blobs_url).delete_folder(FOLDER)
    gone = await api.http.get(job["urls"]["result"])
    assert (gone.status_code, gone.json()["error"]["code"]) == (410, "blob_missing")


async def test_a_chunk_behind_a_link_comes_out_of_the_store_and_no_other_process_is_needed(
    start_api: Start, consumer: Consumer, left: Callable[[], list[str]]
) -> None:
    one, other = await start_api(), await start_api()
    consumer.edit = fat
    job = (await one.submit("cat", wait=10)).json()
    assert len(left()) == 1
    peer = {"X-SIE-SDK-Version": "0.6.8"}
    told = (await one.http.get(f"/v1/jobs/{job['id']}", headers=peer)).json()
    (chunk,) = told["output"]["chunks"]
    path = chunk["ref"].removeprefix(one.url)
    found = await other.http.get(path)
    assert (found.status_code, len(found.content) > 20_000) == (200, True)
    assert (await other.http.get(path + "0")).status_code == 404
    await one.http.delete(f"/v1/jobs/{job['id']}")
    assert (await other.http.get(path)).status_code == 404


async def test_options_too_large_for_a_message_wait_in_the_row(
    api: Api, database: Database, broker: redis.Redis, until: Until, messages: Callable[[], int]
) -> None:
    asking = asyncio.create_task(api.submit("cat", wait=1, options={"instruction": "x" * 9000}))
    await until(messages)
    (lying,) = [len(found) for name in broker.scan_iter("*:org/model*") for found in _listed(broker, name)]
    assert lying < 4096
    await asking
    assert broker.scard(keys.HELD) == 1


def _listed(broker: redis.Redis, name: bytes) -> list[bytes]:
    return list(broker.lrange(name, 0, -1)) if broker.type(name) == b"list" else []  # type: ignore[arg-type]
