from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from api.compat.sie.pool_store import LEASE_S
from api.compat.sie.pools import PoolObject, check_place
from tasks import keys
from tasks.errors import InvalidRequest
from tests.integration.api.test_sie_health import beat

if TYPE_CHECKING:
    import redis

    from tests.integration.api.conftest import Api, Start


async def make(api: Api, status: int = 201, **more: Any) -> PoolObject:
    response = await api.http.post("/v1/pools", json={"name": "Eval", **more})
    assert response.status_code == status, response.text
    return PoolObject.model_validate(response.json())


async def test_a_pool_is_a_lease_that_every_process_sees(start_api: Start, broker: redis.Redis) -> None:
    one, other = await start_api(), await start_api()
    beat(broker)
    pool = await make(one, gpus={"h200": 1}, bundle="default", minimum_worker_count=1)
    assert (pool.name, pool.status.state, pool.spec.gpus) == ("eval", "active", {"h200": 1})
    assert [(w.name, w.gpu, w.bundle) for w in pool.status.assigned_workers] == [("w1", "h200", "default")]
    assert 0 < broker.ttl(keys.pool("eval")) <= LEASE_S
    assert (await other.http.get("/v1/pools/EVAL")).json() == pool.model_dump()
    assert (await other.http.get("/v1/pools")).json() == {
        "pools": [{"name": "eval", "state": "active", "gpus": {"h200": 1}, "worker_count": 1}]
    }


async def test_a_pool_says_that_workers_are_missing(api: Api, broker: redis.Redis) -> None:
    assert (await make(api)).status.state == "pending"
    beat(broker)
    assert (await make(api, 200)).status.state == "active"
    assert (await make(api, 200, gpus={"l4": 1})).status.state == "pending"
    assert (await make(api, 200, minimum_worker_count=2)).status.state == "pending"


async def test_a_renewal_begins_the_lease_anew(api: Api, broker: redis.Redis) -> None:
    made = await make(api)
    broker.expire(keys.pool("eval"), 5)
    renewed = PoolObject.model_validate((await api.http.post("/v1/pools/eval/renew")).json())
    assert broker.ttl(keys.pool("eval")) > 5
    assert renewed.status.created_at == made.status.created_at
    assert renewed.status.last_renewed > made.status.last_renewed


async def test_a_pool_that_is_gone_is_a_404(api: Api, broker: redis.Redis) -> None:
    await make(api)
    assert (await api.http.delete("/v1/pools/eval")).json() == {"name": "eval", "deleted": True}
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/renew")):
        response = await api.http.request(method, f"/v1/pools/eval{path}")
        assert (response.status_code, response.json()["detail"]["code"]) == (404, "POOL_NOT_FOUND")
    await make(api)
    broker.delete(keys.pool("eval"))  # as its lease's end would
    assert (await api.http.get("/v1/pools")).json() == {"pools": []}


@pytest.mark.parametrize(
    ("more", "param", "said"),
    [
        ({"gpu_caps": {"l4": 1}}, "gpu_caps", "cannot be kept"),
        ({"bundle": "other"}, "bundle", "must be 'default'"),
        ({"queue_pool": "acme"}, "queue_pool", "must be 'default'"),
        ({"pinned_models": ["org/plain"]}, "pinned_models[0]", "stay.pinned"),
        ({"minimum_worker_count": -1}, "minimum_worker_count", "greater than or equal to 0"),
        ({"gpus": {"l4": "two"}}, "gpus.l4", "integer"),
        ({"gpu": {"l4": 2}}, "gpu", "did you mean 'gpus'?"),
        ({"name": "a b"}, "name", "match pattern"),
    ],
)
async def test_what_cannot_be_kept_is_refused(api: Api, more: dict[str, Any], param: str, said: str) -> None:
    response = await api.http.post("/v1/pools", json={"name": "eval", **more})
    detail = response.json()["detail"]
    assert (response.status_code, detail["code"], detail["param"]) == (400, "INVALID_INPUT", param)
    assert said in detail["message"]


async def test_an_unknown_model_is_not_pinned_either(api: Api) -> None:
    response = await api.http.post("/v1/pools", json={"name": "eval", "pinned_models": ["org/modle"]})
    assert (response.status_code, response.json()["detail"]["code"]) == (404, "MODEL_NOT_FOUND")


async def test_a_place_must_be_one_that_there_is(api: Api, broker: redis.Redis) -> None:
    it = api.services
    response = await api.http.get("/v1/pools/none")
    assert response.status_code == 404
    await check_place(it, {"x-sie-pool": "default", "x-sie-machine-profile": "l4"})  # nobody is there to say no
    beat(broker)
    await it.presence.live()
    await make(api)
    await check_place(it, {"x-sie-pool": "EVAL", "x-sie-machine-profile": "H200"})
    with pytest.raises(InvalidRequest, match="there are: h200"):
        await check_place(it, {"x-sie-machine-profile": "l4"})
    with pytest.raises(Exception, match="There is no pool 'other'"):
        await check_place(it, {"x-sie-pool": "other"})
