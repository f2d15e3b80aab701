from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
import websockets

from api.compat.sie.capacity import SieHealth
from tasks import keys

if TYPE_CHECKING:
    import redis

    from tests.integration.api.conftest import Api, Start

SIE = {"x-sie-sdk-version": "0.10.1"}


def beat(broker: redis.Redis, name: str = "w1", **more: Any) -> None:
    body = {
        "name": name,
        "at": time.time(),
        "device": "cuda:0",
        "kind": "cuda:nvidia-h200",
        "models": [{"key": "org/model", "state": "resident", "waiting": 3}],
        "ledger": {"total": 100, "free": 40},
        "started": time.time() - 10,
        "stats": {"items": 50},
        **more,
    }
    broker.hset(keys.WORKERS, name, msgpack.packb(body))


async def test_health_tells_workers_and_models(api: Api, broker: redis.Redis) -> None:
    beat(broker)
    beat(broker, "w2", lost=True)
    response = await api.http.get("/health")
    assert response.status_code == 200
    body = SieHealth.model_validate(response.json())
    assert (body.status, body.type, body.live_gpu_types) == ("degraded", "gateway", ["h200"])
    assert (body.cluster.worker_count, body.cluster.gpu_count, body.cluster.models_loaded) == (1, 2, 1)
    assert 5.0 <= body.cluster.total_qps <= 20.0
    worker = body.workers[0]
    assert (worker.gpu, worker.healthy, worker.loaded_models) == ("h200", True, ["org/model"])
    assert (worker.memory_used_bytes, worker.memory_total_bytes) == (60, 100)
    assert [(m.name, m.state, m.worker_count, m.total_queue_depth) for m in body.models] == [
        ("org/model", "loaded", 2, 6)
    ]


async def test_health_is_503_while_no_job_can_run(api: Api) -> None:
    response = await api.http.get("/health")
    assert (response.status_code, response.json()["detail"]["code"]) == (503, "PROVISIONING")
    assert int(response.headers["retry-after"]) >= 1


async def test_the_peers_client_may_wait_for_workers(api: Api) -> None:
    response = await api.http.get("/health", headers=SIE)
    assert response.status_code == 200
    assert (response.json()["status"], response.json()["cluster"]["worker_count"]) == ("no_workers", 0)


async def test_the_peers_client_is_told_of_what_else_is_away(start_api: Start) -> None:
    api = await start_api(broker_url="roost://127.0.0.1:1/0")
    assert (await api.http.get("/health", headers=SIE)).status_code == 503


async def test_who_watches_is_told_at_once_and_when_it_changes(api: Api, broker: redis.Redis) -> None:
    beat(broker)
    await api.services.presence.live()
    url = api.url.replace("http://", "ws://")
    async with websockets.connect(f"{url}/ws/cluster-status", open_timeout=10) as socket:
        first = json.loads(await socket.recv())
        assert [worker["name"] for worker in first["workers"]] == ["w1"]
        assert first["timestamp"] <= time.time()
        beat(broker, "w2")
        second = json.loads(await socket.recv())
        assert [worker["name"] for worker in second["workers"]] == ["w1", "w2"]
        await socket.send("what a watcher says is not heard")
    assert socket.close_code == 1000


async def test_a_watcher_is_told_to_come_again_while_nothing_is_known(start_api: Start) -> None:
    api = await start_api(broker_url="roost://127.0.0.1:1/0")
    url = api.url.replace("http://", "ws://")
    async with websockets.connect(f"{url}/ws/cluster-status") as socket:
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1013


async def test_a_process_that_stops_lets_its_watchers_go(api: Api) -> None:
    async with websockets.connect(f"{api.url.replace('http://', 'ws://')}/ws/cluster-status") as socket:
        await socket.recv()
        api.server.should_exit = True
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1012
