from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgpack
import pytest

from api.model_schemas import ModelList, ModelObject
from tasks import keys

if TYPE_CHECKING:
    import redis

    from tests.integration.api.conftest import Api, Start


def beat(broker: redis.Redis, name: str = "w1", age_s: float = 0.0, state: str = "resident") -> None:
    body = {
        "name": name,
        "at": time.time() - age_s,
        "device": "cpu",
        "models": [{"key": "org/model:small", "state": state, "bytes": 5, "leases": 1, "loads": 2}],
    }
    broker.hset(keys.WORKERS, name, msgpack.packb(body))


async def test_all_models_are_listed_with_what_they_do(api: Api) -> None:
    response = await api.http.get("/v1/models")
    listed = ModelList.model_validate(response.json()).data
    assert [model.id for model in listed] == ["org/model", "org/plain"]
    model = listed[0]
    assert (model.verbs, model.dims, model.matryoshka, model.profiles) == (["encode"], 8, [2, 4], ["small"])
    assert (model.prompts, model.max_length, model.loaded) == (["query"], 64, False)


@pytest.mark.parametrize("path", ["org/model", "org%2Fmodel", "org%2fmodel", "model", "org/model:small", "org__model"])
async def test_a_model_is_found_by_any_spelling(api: Api, path: str) -> None:
    response = await api.http.get(f"/v1/models/{path}")
    assert response.status_code == 200
    assert ModelObject.model_validate(response.json()).id == "org/model"


@pytest.mark.parametrize(
    "path",
    [
        "org/none",
        "org%2Fnone",
        "..%2F..%2Fetc%2Fpasswd",
        "org/..%2Fmodel",
        "m%C3%B6del",
        "x" * 300,
        "org/model:none",
        "a:b:c",
    ],
)
async def test_an_unknown_model_is_a_404_in_the_envelope(api: Api, path: str) -> None:
    response = await api.http.get(f"/v1/models/{path}")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_live_workers_models_are_told(api: Api, broker: redis.Redis) -> None:
    beat(broker)
    model = ModelObject.model_validate((await api.http.get("/v1/models/org/model")).json())
    assert model.loaded
    assert [(w.name, w.state, w.bytes, w.leases) for w in model.workers] == [("w1", "resident", 5, 1)]
    assert not (await api.http.get("/v1/models/org/plain")).json()["loaded"]


async def test_a_loading_model_is_not_loaded(api: Api, broker: redis.Redis) -> None:
    beat(broker, state="loading")
    model = (await api.http.get("/v1/models/org/model")).json()
    assert (model["loaded"], model["workers"][0]["state"]) == (False, "loading")


async def test_a_dead_workers_models_are_not_told(api: Api, broker: redis.Redis) -> None:
    beat(broker, age_s=16)
    assert (await api.http.get("/v1/models/org/model")).json()["workers"] == []


async def test_the_catalog_is_told_without_a_broker(start_api: Start) -> None:
    api = await start_api(broker_url="roost://127.0.0.1:1/0")
    assert len((await api.http.get("/v1/models")).json()["data"]) == 2
