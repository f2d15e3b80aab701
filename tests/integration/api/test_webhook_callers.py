"""What callers use for webhooks, against the routes: the client of ours and `roost webhooks`."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from deploy.commands.webhooks import webhooks
from roost import AsyncClient, Conflict, NotFound, RequestRefused
from tests.integration.api.conftest import Api, Consumer

URL = "https://hooks.example.org/in"


async def test_the_client_manages_endpoints_and_deliveries(api: Api, consumer: Consumer) -> None:
    async with AsyncClient(api.url) as client:
        hooks = client.webhooks
        made = await hooks.create(URL, events=["job.succeeded"], inline=True)
        assert made["secret"] != (await hooks.rotate(made["id"]))["secret"]
        changed = await hooks.update(made["id"], url=f"{URL}/2", description="ours")
        assert (changed["url"], changed["description"], changed["events"]) == (f"{URL}/2", "ours", ["job.succeeded"])
        assert await hooks.list() == [await hooks.get(made["id"])]

        await client.encode("org/model", ["a"], webhook=URL)
        told = await hooks.deliveries(type="job.succeeded")
        assert sorted(one["webhook"] or "" for one in told) == ["", made["id"]]
        test = await hooks.test(made["id"])
        assert (await hooks.delivery(test["id"]))["tried"] == []
        assert (await hooks.disable(made["id"]))["status"] == "disabled"
        with pytest.raises(Conflict):
            await hooks.redeliver(test["id"])
        assert (await hooks.enable(made["id"]))["status"] == "enabled"
        assert (await hooks.redeliver(test["id"]))["status"] == "pending"
        since = datetime.now(UTC) - timedelta(minutes=5)
        (ours,) = (one["id"] for one in told if one["webhook"])
        again = await hooks.redeliver_range(made["id"], since)
        assert again == {"redelivered": 1, "last_id": ours, "has_more": False}
        beyond = await hooks.redeliver_range(made["id"], since, status=["pending"], after=test["id"])
        assert beyond == {"redelivered": 0, "last_id": None, "has_more": False}

        own = await hooks.own_secret()
        assert (await hooks.rotate_own_secret())["secret"] != own["secret"]
        assert (await hooks.delete(made["id"]))["deleted"]
        with pytest.raises(NotFound):
            await hooks.get(made["id"])
        with pytest.raises(RequestRefused) as caught:
            await hooks.create("https://localhost/")
        assert (caught.value.code, caught.value.param) == ("url_refused", "url")
        with pytest.raises(RequestRefused, match="at least one field"):
            await hooks.update(made["id"])


async def test_the_command_does_the_same(api: Api) -> None:
    async def roost(*words: str, status: int = 0) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, webhooks, [*words, "--url", api.url])
        assert done.exit_code == status, done.output
        return done.stdout

    async def fields(*words: str) -> Any:
        return json.loads(await roost(*words, "--json"))

    id_, secret = (await roost("create", URL, "--event", "job.*", "--event", "batch.failed")).split()
    assert secret.startswith("whsec_")
    assert (await fields("show", id_))["events"] == ["job.*", "batch.failed"]
    assert (await fields("rotate", id_))["secret"] != secret
    assert (await fields("update", id_, "--inline", "--to", f"{URL}/2"))["inline"] is True
    assert f"{URL}/2" in await roost("list")
    assert "job.* batch.failed" in await roost("show", id_)

    test = (await roost("test", id_, "--no-wait")).strip()
    assert test in await roost("deliveries", "--status", "pending", "--webhook", id_)
    assert "webhook.test" in await roost("deliveries", test)
    assert (await roost("disable", id_)).strip() == "disabled"
    assert (await fields("deliveries", test))["status"] == "dropped"
    assert "endpoint_disabled" in await refused(api, "redeliver", test)
    assert (await roost("enable", id_)).strip() == "enabled"
    assert (await roost("redeliver", "--webhook", id_, "--since", "1h")).strip() == "1 sent again"
    assert (await fields("redeliver", test))["status"] == "pending"
    assert (await roost("secret")) != (await roost("secret", "--rotate"))
    assert id_ in await roost("delete", id_)
    assert "endpoint_not_found" in await refused(api, "show", id_)


async def refused(api: Api, *words: str) -> str:
    done = await asyncio.to_thread(CliRunner().invoke, webhooks, [*words, "--url", api.url])
    assert done.exit_code == 1, done.output
    return done.stderr
