from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgpack
import pytest

from api.compat.sie.model_schemas import SieModelList
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


SIE = {"x-sie-sdk-version": "0.10.1"}


async def test_openais_clients_find_their_fields(api: Api) -> None:
    for model in (await api.http.get("/v1/models")).json()["data"]:
        assert (model["object"], model["owned_by"], model["created"]) == ("model", "org", 0)


async def test_an_unknown_model_is_told_in_openais_shape(api: Api) -> None:
    error = (await api.http.get("/v1/models/org/modle")).json()["error"]
    assert set(error) == {"message", "type", "param", "code", "retryable"}
    assert (error["type"], error["param"]) == ("invalid_request_error", "model")
    assert "Did you mean 'org/model'" in error["message"]


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("verb=encode", ["org/model", "org/plain"]),
        ("verb=score", []),
        ("family=fake", ["org/model", "org/plain"]),
        ("family=other", []),
        ("input=text&output=dense", ["org/model", "org/plain"]),
        ("output=sparse", []),
        ("loaded=true", ["org/model"]),
        ("loaded=false&allowed=true&verified=false", ["org/plain"]),
    ],
)
async def test_a_list_is_filtered(api: Api, broker: redis.Redis, query: str, ids: list[str]) -> None:
    beat(broker)
    listed = (await api.http.get(f"/v1/models?{query}")).json()["data"]
    assert [model["id"] for model in listed] == ids


@pytest.mark.parametrize(
    ("query", "param", "said"),
    [
        ("?verbs=encode", "verbs", "did you mean 'verb'?"),
        ("?verb=enocde", "verb", "did you mean 'encode'?"),
        ("?verb=encode&verb=score", "verb", "given once"),
        ("/org/model?wait=1", "wait", "Unknown"),
    ],
)
async def test_an_unknown_parameter_is_refused_by_name(api: Api, query: str, param: str, said: str) -> None:
    response = await api.http.get(f"/v1/models{query}")
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (422, "invalid_request", param)
    assert said in error["message"]


async def test_the_peers_client_is_told_the_same_models_in_its_own_words(api: Api, broker: redis.Redis) -> None:
    beat(broker)
    response = await api.http.get("/v1/models", headers=SIE)
    assert response.headers["x-sie-server-version"].startswith("0.10.")
    listed = SieModelList.model_validate(response.json()).models
    assert [(model.name, model.loaded, model.state) for model in listed] == [
        ("org/model", True, "loaded"),
        ("org/plain", False, "available"),
    ]
    one = (await api.http.get("/v1/models/org__model", headers=SIE)).json()
    assert one == response.json()["models"][0]
    assert (one["inputs"], one["outputs"], one["dims"]) == (["text"], ["dense"], {"dense": 8})
    assert {name: profile["is_default"] for name, profile in one["profiles"].items()} == {
        "default": True,
        "small": False,
    }


async def test_the_peers_client_is_told_of_an_unknown_model_in_its_envelope(api: Api) -> None:
    response = await api.http.get("/v1/models/org/modle", headers=SIE)
    detail = response.json()["detail"]
    assert (response.status_code, detail["code"]) == (404, "MODEL_NOT_FOUND")
    assert "Did you mean 'org/model'" in detail["message"]
