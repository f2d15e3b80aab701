"""Dead letters by the routes of a real process: reasons, lists, and trying again."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from click.testing import CliRunner
from sqlalchemy import Connection

from api import retrying
from deploy.commands.dead import dead
from roost import AsyncClient
from tasks import keys
from tasks.db import Database
from tasks.jobs import State
from tasks.service_settings import Auth
from tasks.store import dead as store
from tasks.store import read
from tests.integration.api.conftest import Api, Consumer, Start, Until
from tests.integration.api.test_keys import Make, by, make

__all__ = ["make"]

Fail = Callable[..., None]

_FAIL = """
UPDATE jobs SET state = 'failed', run_at = NULL, keep = %(keep)s, finished_at = now(),
  error = jsonb_build_object('code', %(code)s::text, 'message', 'm'), expires_at = now() + interval '1 hour'
WHERE id = ANY(%(ids)s::uuid[])
"""


@pytest.fixture
def fail(database: Database) -> Fail:
    """Have jobs be failed, as a worker would have left them."""

    def apply(ids: list[str], code: str = "model_failed", *, keep: bool = True) -> None:
        given = {"code": code, "ids": ids, "keep": keep}
        database.run(lambda conn: conn.exec_driver_sql(_FAIL, given).close())

    return apply


async def submit(api: Api, count: int, **how: Any) -> list[str]:
    return [(await api.submit(f"text {n}", **how)).json()["id"] for n in range(count)]


async def redrive(api: Api, headers: Any = None, **body: Any) -> dict[str, Any]:
    answer = await api.http.post("/v1/dead/redrive", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_failed_jobs_are_grouped_by_reason_and_listed_by_it(
    api: Api, idle_consumer: Consumer, fail: Fail
) -> None:
    ids = await submit(api, 7)
    fail(ids[:4])
    fail(ids[4:6], "worker_lost")
    found = (await api.http.get("/v1/dead")).json()
    assert found["complete"] is True
    told = [(one["code"], one["model"], one["verb"], one["jobs"], one["killed_workers"]) for one in found["data"]]
    assert told == [("model_failed", "org/model", "encode", 4, False), ("worker_lost", "org/model", "encode", 2, True)]
    assert [one["example"] for one in found["data"]] == [ids[3], ids[5]]

    async def listed(**query: Any) -> list[str]:
        return [job["id"] for job in (await api.http.get("/v1/jobs", params=query)).json()["data"]]

    assert await listed(error="model_failed") == ids[3::-1]
    assert await listed(status="failed", model="org/model") == ids[5::-1]
    assert await listed(status="failed", error="nothing") == []
    now = datetime.now(UTC)
    assert await listed(since=(now - timedelta(minutes=1)).isoformat(), error="worker_lost") == ids[5:3:-1]
    assert await listed(until=(now - timedelta(minutes=1)).isoformat()) == []
    for query, groups in ((f"code=worker_lost&since={_text(now - timedelta(hours=1))}", 1), ("model=other", 0)):
        assert len((await api.http.get(f"/v1/dead?{query}")).json()["data"]) == groups


def _text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


async def test_killers_are_tried_again_only_if_they_are_asked_for_and_then_alone(
    api: Api, idle_consumer: Consumer, fail: Fail, database: Database
) -> None:
    ids = await submit(api, 5)
    fail(ids[:2])
    fail(ids[2:], "worker_lost")
    first = await redrive(api)
    assert (first["redriven"], first["jobs"], first["has_more"]) == (2, ids[:2], False)
    by_id = await redrive(api, ids=[ids[2]])
    assert by_id["jobs"] == [ids[2]]
    rest = await redrive(api, killers=True)
    assert rest["jobs"] == ids[3:]
    rows = database.run(read.jobs, [UUID(id_) for id_ in ids])
    assert [rows[UUID(id_)].attempt for id_ in ids] == [1, 1, 2, 2, 2]
    assert {row.state for row in rows.values()} == {State.QUEUED}


async def test_what_is_redriven_runs_and_is_redriven_once_by_two_who_ask_at_once(
    api: Api, consumer: Consumer, fail: Fail, until: Until
) -> None:
    consumer.hold()
    ids = await submit(api, 20)
    fail(ids)
    consumer.release()
    answers = await asyncio.gather(*(redrive(api, limit=15) for _ in range(4)))
    counted = Counter(id_ for answer in answers for id_ in answer["jobs"])
    left = (await redrive(api))["jobs"]
    assert counted + Counter(left) == Counter(ids)

    async def ended() -> bool:
        jobs = (await api.http.get("/v1/jobs", params={"limit": 100})).json()["data"]
        return {job["status"] for job in jobs} == {"succeeded"}

    async with asyncio.timeout(20):
        while not await ended():  # noqa: ASYNC110 - rows send no signal
            await asyncio.sleep(0.05)


async def test_those_that_cannot_be_tried_again_are_named_with_why(
    api: Api, idle_consumer: Consumer, fail: Fail
) -> None:
    open_, gone, forgotten, good = await submit(api, 4)
    fail([gone, forgotten, good])
    fail([forgotten], keep=False)
    nobody = "0199c0de-0000-7000-8000-000000000000"
    found = await redrive(api, ids=[open_, forgotten, good, nobody])
    assert found["jobs"] == [good]
    reasons = {one["id"]: one["reason"] for one in found["refused"]}
    assert set(reasons) == {open_, forgotten, nobody}
    assert "has not failed" in reasons[open_]
    assert "'store': false" in reasons[forgotten]
    assert "no such job" in reasons[nobody]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"ids": []}, "ids"),
        ({"ids": ["x"]}, "ids[0]"),
        ({"ids": ["0199c0de-0000-7000-8000-000000000000"], "code": "x"}, "code"),
        ({"limit": 0}, "limit"),
        ({"limit": 100_000}, "limit"),
        ({"killer": True}, "killer"),
        ({"since": "yesterday"}, "since"),
        ({"code": ""}, "code"),
        ({"model": ""}, "model"),
        ([], None),
    ],
)
async def test_a_wrong_request_is_named_and_nothing_is_done(api: Api, body: Any, param: str | None) -> None:
    answer = await api.http.post("/v1/dead/redrive", json=body)
    assert (answer.status_code, answer.json()["error"].get("param")) == (422, param), answer.text


async def test_trying_again_is_held_against_the_limits_of_the_tenant(
    start_api: Start, idle_consumer: Consumer, fail: Fail, broker: redis.Redis
) -> None:
    api = await start_api(tenant_open_jobs=3)
    ids = []
    for _ in range(2):
        some = await submit(api, 3)
        fail(some)
        broker.delete(keys.open_jobs("default"))
        ids += some
    found = await redrive(api)
    assert (found["redriven"], found["jobs"], found["has_more"]) == (3, ids[:3], True)
    refused = await api.http.post("/v1/dead/redrive", json={})
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_jobs")
    assert "retry-after" in refused.headers
    alone = await api.http.post(f"/v1/jobs/{ids[4]}/retry")
    assert (alone.status_code, alone.json()["error"]["code"]) == (429, "too_many_jobs")
    by_id = await api.http.post("/v1/dead/redrive", json={"ids": [ids[4]]})
    assert by_id.status_code == 429
    broker.delete(keys.open_jobs("default"))
    assert (await api.http.post(f"/v1/jobs/{ids[4]}/retry")).status_code == 202
    again = await api.http.post(f"/v1/jobs/{ids[4]}/retry")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "not_retryable")
    assert broker.zcard(keys.open_jobs("default")) == 1, "what is not tried again is not counted"


async def test_two_who_ask_at_once_have_each_job_counted_as_open(
    start_api: Start, idle_consumer: Consumer, fail: Fail, broker: redis.Redis
) -> None:
    api = await start_api(tenant_open_jobs=50)
    ids = await submit(api, 8)
    for ask in (
        lambda: asyncio.gather(*(redrive(api) for _ in range(4))),
        lambda: asyncio.gather(*(api.http.post(f"/v1/jobs/{id_}/retry") for id_ in ids for _ in range(3))),
    ):
        fail(ids)
        broker.delete(keys.open_jobs("default"))
        await ask()
        assert broker.zcard(keys.open_jobs("default")) == len(ids)


async def test_the_command_tries_each_job_once_however_soon_it_fails_again(
    api: Api, idle_consumer: Consumer, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests, moved = 0, store.redrive

    def again(conn: Connection, *given: Any) -> list[UUID]:
        nonlocal requests
        requests += 1
        assert requests < 10, "it has no end"
        done = moved(conn, *given)
        conn.exec_driver_sql(_FAIL, {"code": "model_failed", "ids": done, "keep": True}).close()
        return done

    ids = await submit(api, 5)
    fail(ids)
    monkeypatch.setattr(retrying, "MOST_REDRIVEN", 2)
    monkeypatch.setattr(store, "redrive", again)
    done = await asyncio.to_thread(CliRunner().invoke, dead, ["redrive", "--all", "--json", "--url", api.url])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["jobs"] == ids


async def test_a_tenant_sees_and_moves_nothing_of_another(
    start_api: Start, make: Make, idle_consumer: Consumer, fail: Fail
) -> None:
    api = await start_api(auth=Auth.ON)
    ours, theirs = by(make("acme")), by(make("other"))
    ids = await submit(api, 2, headers=ours)
    fail(ids)
    assert (await api.http.get("/v1/dead", headers=theirs)).json()["data"] == []
    assert (await redrive(api, theirs))["redriven"] == 0
    assert (await redrive(api, theirs, ids=ids))["redriven"] == 0
    assert (await redrive(api, ours))["jobs"] == ids


async def test_the_client_and_the_command_see_reasons_and_try_again(
    api: Api, idle_consumer: Consumer, fail: Fail
) -> None:
    ids = await submit(api, 4)
    fail(ids[:3])
    fail(ids[3:], "worker_lost")
    async with AsyncClient(api.url) as client:
        assert [group["jobs"] for group in await client.dead.groups(model="org/model")] == [3, 1]
        assert [job.id async for job in client.jobs(error="worker_lost")] == ids[3:]
        one = await client.dead.redrive([ids[0], ids[0]])
        assert (one["jobs"], one["refused"]) == (ids[:1], [])

    async def roost(*words: str) -> Any:
        done = await asyncio.to_thread(CliRunner().invoke, dead, [*words, "--json", "--url", api.url])
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    assert [group["killed_workers"] for group in await roost("list", "--code", "worker_lost")] == [True]
    assert (await roost("redrive", "--code", "model_failed"))["jobs"] == ids[1:3]
    assert (await roost("redrive", "--all", "--killers"))["jobs"] == ids[3:]
    assert (await roost("redrive", ids[0]))["refused"][0]["id"] == ids[0]
    assert await roost("list") == []
