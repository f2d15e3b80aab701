"""`get_capacity`, `wait_for_capacity`, `watch` and the pools of the peer's client."""

from __future__ import annotations

import time

import pytest
from sie_sdk import SIEAsyncClient, SIEClient
from sie_sdk.client.errors import PoolError, ProvisioningError, RequestError
from sie_sdk.types import PoolSpec

MODEL = "fake/vectors"


def test_capacity_tells_the_workers(url: str) -> None:
    with SIEClient(url) as client:
        capacity = client.get_capacity()
        assert client.get_capacity(gpu="none-such")["workers"] == []
    assert (capacity["status"], capacity["worker_count"], capacity["live_gpu_types"]) == ("healthy", 1, ["cpu"])
    (worker,) = capacity["workers"]
    assert (worker["gpu"], worker["healthy"], worker["bundle"]) == ("cpu", True, "default")


def test_waiting_for_capacity_comes_back_once_it_is_there(url: str) -> None:
    with SIEClient(url) as client:
        assert client.wait_for_capacity("cpu", timeout_s=10)["worker_count"] == 1
        loaded = client.wait_for_capacity("CPU", model=MODEL, timeout_s=60)
        assert loaded["worker_count"] == 1
        with pytest.raises(ProvisioningError):
            client.wait_for_capacity("l4", timeout_s=0.1, poll_interval_s=0.05)


def test_watch_tells_the_workers_and_each_change(url: str) -> None:
    with SIEClient(url) as client:
        messages = client.watch()
        first = next(messages)
        messages.close()
    assert [worker["gpu"] for worker in first["workers"]] == ["cpu"]
    assert first["cluster"]["worker_count"] == 1
    assert abs(first["timestamp"] - time.time()) < 60


def test_there_is_no_single_worker_to_watch(url: str) -> None:
    with SIEClient(url) as client, pytest.raises(RequestError, match="403"):
        next(client.watch(mode="worker"))


async def test_the_async_client_watches_and_waits(url: str) -> None:
    async with SIEAsyncClient(url) as client:
        async for message in client.watch():
            assert message["cluster"]["worker_count"] == 1
            break
        assert (await client.wait_for_capacity("cpu", timeout_s=10))["worker_count"] == 1
        assert (await client.get_capacity())["status"] == "healthy"


def test_a_pool_is_made_used_and_deleted(url: str) -> None:
    with SIEClient(url) as client:
        client.create_pool("Eval", {"cpu": 1}, bundle="default", minimum_worker_count=1)
        info = client.get_pool("eval")
        assert info is not None
        assert (info["name"], info["status"]["state"]) == ("eval", "active")
        assert [worker["gpu"] for worker in info["status"]["assigned_workers"]] == ["cpu"]
        assert client.encode(MODEL, {"text": "a"}, gpu="eval/cpu")["dense"].shape == (8,)
        assert client.delete_pool("eval")
        assert not client.delete_pool("eval")
        assert client.get_pool("eval") is None


def test_a_pool_that_the_client_makes_by_itself(url: str) -> None:
    with SIEClient(url, pool=PoolSpec(name="own", gpus={"cpu": 1})) as client:
        assert client.encode(MODEL, {"text": "a"})["dense"].shape == (8,)
        assert client.get_pool() is not None
        assert client.delete_pool()


def test_what_no_pool_can_keep_is_refused(url: str) -> None:
    with SIEClient(url) as client:
        with pytest.raises(PoolError, match="gpu_caps"):
            client.create_pool("caps", gpu_caps={"cpu": 1})
        with pytest.raises(PoolError, match=r"stay\.pinned"):
            client.create_pool("pins", pinned_models=[MODEL])
        with pytest.raises(PoolError, match="Did you mean 'fake/vectors'"):
            client.create_pool("pins", pinned_models=["fake/vectros"])


def test_a_pool_or_profile_that_is_not_there_is_refused(url: str) -> None:
    with SIEClient(url) as client:
        with pytest.raises(RequestError, match="There is no pool 'none'"):
            client.encode(MODEL, {"text": "a"}, gpu="none/cpu")
        with pytest.raises(RequestError, match="there are: cpu"):
            client.encode(MODEL, {"text": "a"}, gpu="l4")


async def test_the_async_client_has_the_same_pools(url: str) -> None:
    async with SIEAsyncClient(url) as client:
        await client.create_pool("later", {"cpu": 1})
        info = await client.get_pool("later")
        assert info is not None
        assert info["status"]["state"] == "active"
        assert await client.delete_pool("later")
        assert await client.get_pool("later") is None
