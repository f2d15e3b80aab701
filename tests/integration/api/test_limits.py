"""What a tenant may, held at the door of real processes, and what it used."""

from __future__ import annotations

import asyncio
import csv
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from typing import Any

import openai
import pytest
import redis

from api import limits
from tasks import keys
from tasks.db import Database
from tasks.open_jobs import AGE_S, heal
from tasks.service_settings import Auth
from tasks.store import api_keys, usage
from tasks.store.usage import By
from tests.integration.api.conftest import Api, Consumer, Start, Until
from tests.integration.api.test_keys import Make, by, make

__all__ = ["make"]

TODAY = datetime.now(UTC).date()


async def codes(api: Api, count: int, **how: Any) -> Counter[Any]:
    answers = await asyncio.gather(*(api.submit(f"text {n}", **how) for n in range(count)))
    return Counter(answer.status_code if answer.is_success else answer.json()["error"]["code"] for answer in answers)


async def test_of_fifty_at_once_as_many_are_open_as_may_be_over_all_processes(
    start_api: Start, idle_consumer: Consumer, until: Until, broker: redis.Redis
) -> None:
    both = [await start_api(tenant_open_jobs=10) for _ in range(2)]
    found = sum(await asyncio.gather(*(codes(api, 25) for api in both)), Counter[Any]())
    assert found == {202: 10, "too_many_jobs": 40}
    idle_consumer.release()
    await until(lambda: broker.zcard(keys.open_jobs("default")) == 0)
    assert await codes(both[0], 5, wait=10) == {200: 5}
    await until(lambda: broker.zcard(keys.open_jobs("default")) == 0)


async def test_a_repeat_of_what_is_there_is_answered_at_every_limit_but_the_rate(
    start_api: Start, idle_consumer: Consumer
) -> None:
    api = await start_api(tenant_open_jobs=1, tenant_items_per_day=1)
    headers = {"Idempotency-Key": "one"}
    first = await api.submit(headers=headers)
    again = await api.submit(headers=headers)
    other = await api.submit(headers={"Idempotency-Key": "two"})
    assert (first.status_code, again.status_code, again.json()["id"]) == (202, 202, first.json()["id"])
    assert (other.status_code, other.json()["error"]["code"]) == (429, "quota_exceeded")


async def test_what_is_refused_uses_nothing_of_the_day(start_api: Start, idle_consumer: Consumer) -> None:
    api = await start_api(tenant_open_jobs=1, tenant_items_per_day=5)
    assert await codes(api, 10) == {202: 1, "too_many_jobs": 9}


async def test_a_cancelled_job_and_one_that_a_key_led_to_are_not_open(
    start_api: Start, idle_consumer: Consumer, broker: redis.Redis
) -> None:
    api = await start_api(tenant_open_jobs=2)
    first = await api.submit(headers={"Idempotency-Key": "one"})
    again = await api.submit(headers={"Idempotency-Key": "one"})
    assert first.json()["id"] == again.json()["id"]
    assert broker.zcard(keys.open_jobs("default")) == 1
    assert (await api.http.post(f"/v1/jobs/{first.json()['id']}/cancel")).status_code == 200
    assert broker.zcard(keys.open_jobs("default")) == 0


async def test_what_a_crash_left_counted_is_taken_out_and_nothing_else(
    start_api: Start, idle_consumer: Consumer, broker: redis.Redis, database: Database
) -> None:
    api = await start_api(tenant_open_jobs=5)
    alive = (await api.submit()).json()["id"]
    name = keys.open_jobs("default")
    broker.zadd(name, {"0199c0de-0000-7000-8000-000000000001": time.time(), "0199c0de-0000-7000-8000-000000000002": 5})
    assert heal(broker, database, lambda ids: set(), time.time) == 1
    later = time.time() + AGE_S + 1
    assert heal(broker, database, set, lambda: later) == 0  # whatever has a message is open
    assert heal(broker, database, lambda ids: None, lambda: later) == 1
    assert broker.zrange(name, 0, -1) == [alive.encode()]


async def test_a_rate_is_held_with_a_burst_and_the_refusal_says_when(start_api: Start, consumer: Consumer) -> None:
    api = await start_api(tenant_requests_per_s=0.25, tenant_burst=3)
    assert await codes(api, 8) == {202: 3, "rate_limited": 5}
    answer = await api.submit()
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "4")
    assert answer.json()["error"]["retryable"]
    with openai.OpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0) as client:

        def embed() -> None:
            client.embeddings.create(model="org/model", input="a")

        with pytest.raises(openai.RateLimitError) as caught:
            await asyncio.to_thread(embed)
    assert (caught.value.code, caught.value.response.headers["retry-after"]) == ("rate_limit_exceeded", "4")
    for path, body in (
        ("/v1/encode/org/model", {"items": [{"text": "a"}]}),
        ("/tei/org/model/embed", {"inputs": "a"}),
        (
            "/v2/embed",
            {"model": "org/model", "texts": ["a"], "input_type": "search_query", "embedding_types": ["float"]},
        ),
    ):
        answer = await api.http.post(path, json=body)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "4"), (path, answer.text)


async def test_while_valkey_is_away_each_process_holds_the_rate(
    start_api: Start, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = await start_api(tenant_requests_per_s=0.01, tenant_burst=2, tenant_open_jobs=1)

    async def away(**_: Any) -> None:
        raise redis.ConnectionError

    monkeypatch.setattr(api.services.limiter, "_admit", away)
    assert await codes(api, 5) == {202: 2, "rate_limited": 3}


async def test_a_quota_is_of_a_day_and_of_a_tenant(
    start_api: Start, make: Make, consumer: Consumer, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DAY_FRESH_S", 0.0)
    api = await start_api(auth=Auth.ON)
    ours, theirs = make("acme"), make("other")
    database.run(api_keys.limit, "acme", {"items_per_day": 3}, None)
    assert (await api.submit("a", "b", "c", wait=10, headers=by(ours))).json()["status"] == "succeeded"
    answer = await api.submit(headers=by(ours))
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "quota_exceeded")
    midnight = datetime.combine(TODAY + timedelta(days=1), datetime.min.time(), UTC).timestamp()
    assert abs(int(answer.headers["retry-after"]) - (midnight - time.time())) < 60
    assert (await api.submit(headers=by(theirs))).status_code == 202


@pytest.fixture
def used(database: Database) -> Any:
    return lambda by_: database.run(usage.report, None, date.min, date.max, by_, 100)


async def test_what_ended_jobs_used_is_reported_by_tenant_and_model_and_day(
    start_api: Start, make: Make, consumer: Consumer, used: Any
) -> None:
    from tasks.api_keys import Scope

    api = await start_api(auth=Auth.ON)
    ours, theirs, rules = make("acme", Scope.READ, Scope.WRITE), make("other"), make("root", Scope.ADMIN)
    for key, texts, model in (
        (ours, ["a b", ""], "org/model"),
        (ours, ["c"], "org/plain"),
        (theirs, ["d"], "org/model"),
    ):
        await api.submit(*texts, wait=10, headers=by(key), model=model)
    await api.submit("", wait=10, headers=by(ours))
    lines = (await api.http.get("/v1/usage", headers=by(ours))).json()["data"]
    assert [(line["tenant"], line["model"]) for line in lines] == [("acme", "org/model"), ("acme", "org/plain")]
    assert [(line["jobs"], line["jobs_failed"]) for line in lines] == [(2, 1), (1, 0)]
    assert [(line["items"], line["items_failed"], line["device_ms"]) for line in lines] == [(3, 2, 2.0), (1, 0, 1.0)]
    assert lines[0]["tokens"] > 0

    assert (await api.http.get("/v1/usage?tenant=other", headers=by(ours))).status_code == 403
    everyone = (await api.http.get("/v1/usage?tenant=*&by=day", headers=by(rules))).json()["data"]
    assert [(line["tenant"], line["day"], line["jobs"]) for line in everyone] == [
        ("acme", TODAY.isoformat(), 3),
        ("other", TODAY.isoformat(), 1),
    ]
    table = await api.http.get("/v1/usage", headers={**by(ours), "Accept": "text/csv"})
    rows = list(csv.DictReader(StringIO(table.text)))
    assert [(row["model"], row["items"]) for row in rows] == [("org/model", "3"), ("org/plain", "1")]
    page = (await api.http.get("/metrics", headers=by(rules))).text
    assert 'roost_tenant_items_total{model="org/model",tenant="acme"} 3.0' in page
    assert sum(line.used.jobs for line in used(By.MODEL)) == 4


async def test_the_first_days_of_all_can_be_asked_for(api: Api) -> None:
    answer = await api.http.get("/v1/usage?until=0001-01-02")
    assert (answer.status_code, answer.json()["since"]) == (200, "0001-01-01")


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("since=tomorrow", "since"),
        ("until=0", "until"),
        ("until=2026-11-30T00:00:00", "until"),
        ("since=2026-02-01&until=2026-01-01", "since"),
        ("by=week", "by"),
        ("modell=x", "modell"),
        ("tenant=%00", "tenant"),
        ("tenant=Acme", "tenant"),
    ],
)
async def test_a_report_that_cannot_be_is_refused_by_name(api: Api, query: str, param: str) -> None:
    answer = await api.http.get(f"/v1/usage?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, param)
