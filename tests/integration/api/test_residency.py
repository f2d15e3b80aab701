from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from api.model_schemas import ModelObject, Residency
from tasks import keys

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tests.integration.api.conftest import Api, Start

PLAIN = "org/plain"


def beat(broker: redis.Redis, name: str = "w1", age_s: float = 0.0, **more: Any) -> None:
    body = {
        "name": name,
        "at": time.time() - age_s,
        "device": "cuda:0",
        "kind": "cuda:h200",
        "models": [{"key": "org/model:small", "state": "resident", "bytes": 5, "host_bytes": 2, "waiting": 3}],
        "ledger": {"budget": 100, "weights": 5, "lent": 1, "foreign": 9},
        **more,
    }
    broker.hset(keys.WORKERS, name, msgpack.packb(body))


async def residency(api: Api, **query: str) -> Residency:
    response = await api.http.get("/v1/residency", params=query)
    assert response.status_code == 200, response.text
    return Residency.model_validate(response.json())


async def test_every_live_worker_tells_its_device_and_its_models(api: Api, broker: redis.Redis) -> None:
    beat(broker, "w2")
    beat(broker, "w1", models=[])
    beat(broker, "dead", age_s=16)
    found = (await residency(api)).data
    assert [(worker.name, worker.hardware, worker.memory.foreign) for worker in found] == [
        ("w1", "cuda:h200", 9),
        ("w2", "cuda:h200", 9),
    ]
    assert [model.model for model in found[1].models] == ["org/model:small"]


@pytest.mark.parametrize(
    ("query", "workers"),
    [
        ({"worker": "w2"}, ["w2"]),
        ({"worker": "w3"}, []),
        ({"model": "model"}, ["w1"]),
        ({"model": "org/model:small"}, ["w1"]),
        ({"model": "org/model:default"}, []),
        ({"model": "org/plain"}, ["w2"]),
        ({"model": "org/plain", "worker": "w1"}, []),
    ],
)
async def test_it_can_be_narrowed_to_a_model_and_a_worker(
    api: Api, broker: redis.Redis, query: dict[str, str], workers: list[str]
) -> None:
    beat(broker, "w1")
    beat(broker, "w2", models=[], too_large={PLAIN: "It takes too much."})
    assert [worker.name for worker in (await residency(api, **query)).data] == workers


async def test_an_unknown_model_is_a_404(api: Api) -> None:
    response = await api.http.get("/v1/residency", params={"model": "org/none"})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


async def test_without_a_broker_nothing_is_known(start_api: Start) -> None:
    api = await start_api(broker_url="roost://127.0.0.1:1/0")
    response = await api.http.get("/v1/residency")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "broker_unavailable")
    assert int(response.headers["retry-after"]) >= 1


async def test_a_model_tells_its_price_and_its_sums_over_all_workers(api: Api, broker: redis.Redis) -> None:
    beat(broker, "w1")
    beat(broker, "w2", models=[{"key": "org/model", "state": "loading", "bytes": 7}])
    model = ModelObject.model_validate((await api.http.get("/v1/models/org/model")).json())
    assert (model.state, model.waiting, model.cost.base, model.unit) == ("resident", 3, 1.0, "tokens")
    assert (model.bytes.weights, model.bytes.host) == (12, 2)


async def test_a_model_that_fits_no_live_worker_is_refused_before_anything_is_stored(
    api: Api, broker: redis.Redis, messages: Callable[[], int]
) -> None:
    for name in ("w1", "w2"):
        beat(broker, name, too_large={PLAIN: f"It takes more than {name} has."})
    await api.services.presence.live()
    response = await api.submit("a text", model="plain")
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (422, "model_too_large", "model")
    assert (error["message"], error["retryable"]) == ("It takes more than w1 has.", False)
    assert (await api.http.get("/v1/jobs")).json()["data"] == []
    assert messages() == 0
    assert (await api.submit("a text")).status_code == 202


async def test_it_is_let_in_as_soon_as_a_worker_comes_that_it_fits(api: Api, broker: redis.Redis) -> None:
    beat(broker, "w1", too_large={PLAIN: "It takes too much."})
    await api.services.presence.live()
    beat(broker, "w2")
    assert (await api.submit("a text", model=PLAIN)).status_code == 202


async def test_it_is_let_in_while_no_worker_is_there(api: Api, broker: redis.Redis) -> None:
    beat(broker, "w1", too_large={PLAIN: "It takes too much."})
    await api.services.presence.live()
    broker.delete(keys.WORKERS)
    assert (await api.submit("a text", model=PLAIN)).status_code == 202


async def test_a_model_tells_which_workers_it_can_never_run_on(api: Api, broker: redis.Redis) -> None:
    beat(broker, "w1", too_large={PLAIN: "It takes too much."})
    beat(broker, "w2")
    model = ModelObject.model_validate((await api.http.get(f"/v1/models/{PLAIN}")).json())
    assert [(one.worker, one.reason) for one in model.too_large] == [("w1", "It takes too much.")]
