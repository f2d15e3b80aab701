from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgpack
from prometheus_client.parser import text_string_to_metric_families

from tasks import keys

if TYPE_CHECKING:
    import redis

    from tests.integration.api.conftest import Api, Consumer, Start


def beat(broker: redis.Redis, **more: Any) -> None:
    stats = {"batches": 2, "items": 6, "real_tokens": 90, "padded_tokens": 120, "device_s": 0.5}
    body = {
        "name": "w1",
        "at": time.time(),
        "device": "cpu",
        "stats": stats,
        "ledger": {"budget": 10, "weights": 4, "lent": 0},
        **more,
    }
    broker.hset(keys.WORKERS, "w1", msgpack.packb(body))


async def test_a_process_that_answers_is_healthy_whatever_else_is_away(start_api: Start) -> None:
    api = await start_api(broker_url="roost://127.0.0.1:1/0", database_url="postgresql://x@127.0.0.1:1/none")
    response = await api.http.get("/healthz")
    assert (response.status_code, response.text) == (200, "ok")


async def test_all_is_ready_once_a_worker_beats(api: Api, broker: redis.Redis) -> None:
    for path in ("/readyz", "/livez"):
        response = await api.http.get(path)
        assert response.status_code == 503
        assert list(response.json()["reasons"]) == ["worker"]
        assert int(response.headers["retry-after"]) >= 1
    beat(broker)
    for path in ("/readyz", "/livez"):
        response = await api.http.get(path)
        assert (response.status_code, response.text) == (200, "ok")


async def test_a_worker_whose_device_is_lost_is_not_enough(api: Api, broker: redis.Redis) -> None:
    beat(broker, lost=True)
    response = await api.http.get("/livez")
    assert (response.status_code, list(response.json()["reasons"])) == (503, ["worker"])


async def test_what_is_away_is_named(start_api: Start) -> None:
    api = await start_api(broker_url="roost://127.0.0.1:1/0", database_url="postgresql://x@127.0.0.1:1/none")
    api.services.database._patience_s = 0.1
    body = (await api.http.get("/readyz")).json()
    assert set(body["reasons"]) == {"database", "broker"}
    assert (body["error"]["code"], body["error"]["retryable"]) == ("not_ready", True)


async def samples(api: Api) -> dict[str, float]:
    response = await api.http.get("/metrics")
    assert response.status_code == 200
    return {
        f"{sample.name}{sorted(sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def test_metrics_tell_of_requests_queues_jobs_and_workers(api: Api, broker: redis.Redis) -> None:
    beat(broker)
    job = (await api.submit("cat")).json()
    for _ in range(2):
        await api.http.get(job["urls"]["self"])
    await api.http.get("/v1/jobs/no-id")
    await api.http.get("/nowhere")
    await api.services.submitter.close()
    found = await samples(api)
    assert found["roost_http_requests_total['/v1/jobs', '202', 'POST']"] == 1
    assert found["roost_http_requests_total['/v1/jobs/{id}', '200', 'GET']"] == 2
    assert found["roost_http_requests_total['/v1/jobs/{id}', '404', 'GET']"] == 1
    assert found["roost_http_requests_total['404', 'GET', 'unknown']"] == 1
    assert found["roost_submissions_total['encode', 'interactive', 'stored']"] == 1
    assert found["roost_queue_messages['interactive.xs']"] == 1
    assert found["roost_open_jobs['interactive', 'queued']"] == 1
    assert found["roost_workers[]"] == 1
    assert found["roost_worker_padding_ratio['cpu', 'w1']"] == 0.25
    assert found["roost_up['database']"] == found["roost_up['broker']"] == 1


async def test_metrics_tell_how_waits_ended(api: Api, consumer: Consumer) -> None:
    await api.submit("cat", wait=10)
    consumer.hold()
    await api.submit("cat", wait=0.1)
    found = await samples(api)
    assert found["roost_waits_total['done']"] == 1
    assert found["roost_waits_total['timeout']"] == 1
    assert found["roost_submissions_total['direct', 'encode', 'interactive']"] == 2
    consumer.release()


async def test_metrics_are_told_when_all_else_is_away(start_api: Start) -> None:
    api = await start_api(broker_url="roost://127.0.0.1:1/0", database_url="postgresql://x@127.0.0.1:1/none")
    api.services.database._patience_s = 0.1
    found = await samples(api)
    assert found["roost_up['database']"] == found["roost_up['broker']"] == found["roost_up['workers']"] == 0


async def test_jobs_are_counted_no_more_often_than_the_limit(api: Api) -> None:
    await samples(api)
    await api.submit("cat")
    pages = await asyncio.gather(*(samples(api) for _ in range(3)))
    assert all("roost_open_jobs['interactive', 'queued']" not in page for page in pages)


async def test_metrics_tell_of_the_time_without_the_broker(start_api: Start) -> None:
    api = await start_api(broker_url="roost://127.0.0.1:1/0")
    assert (await samples(api))["roost_link_down_seconds_total[]"] > 0


async def test_metrics_tell_of_the_stages_that_workers_saw(api: Api, broker: redis.Redis) -> None:
    stages = {"le": [0.1, 1.0], "of": [["encode", "interactive", "load", [2, 1, 0], 1.5]]}
    beat(broker, tally={"stages": stages})
    found = await samples(api)
    assert found["roost_job_stage_seconds_bucket['0.1', 'encode', 'interactive', 'load', 'w1']"] == 2
    assert found["roost_job_stage_seconds_count['encode', 'interactive', 'load', 'w1']"] == 3


async def test_metrics_tell_of_webhooks_that_wait_and_of_attempts(api: Api, broker: redis.Redis) -> None:
    made = (await api.http.post("/v1/webhooks", json={"url": "https://hooks.example.org/"})).json()
    await api.http.post(f"/v1/webhooks/{made['id']}/test")
    broker.hincrby(keys.ATTEMPTS, "unreachable", 7)
    found = await samples(api)
    assert found["roost_webhooks_pending[]"] == 1
    assert 0 <= found["roost_webhooks_oldest_due_seconds[]"] < 60
    assert found["roost_webhook_attempts_total['unreachable']"] == 7
    assert found["roost_webhook_attempts_total['delivered']"] == 0
