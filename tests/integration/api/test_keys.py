"""Who gets in with which key, and what it sees there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import openai
import pytest
import websockets
from websockets.typing import Origin

from api import auth
from api.routes import events
from tasks.api_keys import HINT_CHARS, ApiKey, Scope, Tenant, hash_of, new_key
from tasks.db import Database
from tasks.errors import StoreUnavailable
from tasks.service_settings import Auth
from tasks.store import api_keys
from tests.integration.api.conftest import Api, Consumer, Start, Until

NOW = datetime.now(UTC)

Make = Callable[..., str]


@pytest.fixture
def make(database: Database) -> Make:
    """A key of a tenant."""

    def made(tenant: str = "acme", *scopes: Scope, **fields: Any) -> str:
        key = new_key()
        scopes = scopes or (Scope.READ, Scope.WRITE)
        row = ApiKey(uuid4(), Tenant(tenant, NOW), "test", key[:HINT_CHARS], frozenset(scopes), NOW, **fields)
        database.run(api_keys.create, row, hash_of(key), NOW)
        return key

    return made


@pytest.fixture
async def keyed(start_api: Start) -> Api:
    return await start_api(auth=Auth.ON)


def by(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_nobody_gets_in_without_a_key_and_no_body_is_read(keyed: Api, make: Make) -> None:
    codes = {}
    for name, headers in {
        "none": {},
        "chance": by("hunter2"),
        "form": by(new_key()),
        "expired": by(make(expires_at=NOW - timedelta(seconds=1))),
    }.items():
        answer = await keyed.http.post("/v1/jobs", content=b"{ no json", headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="roost"')
        codes[name] = answer.json()["error"]["code"]
    assert codes == {"none": "key_missing", "chance": "key_unknown", "form": "key_unknown", "expired": "key_expired"}
    for path in ("/healthz", "/openapi.json", "/docs"):
        assert (await keyed.http.get(path)).status_code == 200


async def test_a_key_does_what_its_scopes_say(keyed: Api, make: Make, consumer: Consumer) -> None:
    reads, writes, rules = make("acme", Scope.READ), make("acme", Scope.WRITE), make("acme", Scope.ADMIN)
    answer = await keyed.submit(wait=10, headers=by(writes))
    assert answer.json()["status"] == "succeeded"
    path = f"/v1/jobs/{answer.json()['id']}"
    for key, method, expected in (
        (reads, "GET", 200),
        (rules, "GET", 200),
        (writes, "GET", 403),
        (reads, "POST", 403),
    ):
        found = await keyed.http.request(method, path if method == "GET" else f"{path}/cancel", headers=by(key))
        assert found.status_code == expected, found.text
    assert found.json()["error"]["code"] == "scope_missing"
    said = "`roost keys create --tenant acme --scope read --scope write`"
    assert all(part in found.json()["error"]["message"] for part in ("'write'", said))
    assert (await keyed.http.get("/metrics", headers=by(reads))).status_code == 403
    assert (await keyed.http.get("/metrics", headers=by(rules))).status_code == 200


async def test_a_tenant_sees_nothing_of_another(keyed: Api, make: Make, consumer: Consumer) -> None:
    ours, theirs = make("acme"), make("other")
    job = (await keyed.submit(wait=10, headers={**by(ours), "Idempotency-Key": "one"}, tags=["x"])).json()["id"]
    upload = {"file": ("a.jsonl", b"{}\n")}
    file = (await keyed.http.post("/v1/files", data={"purpose": "batch"}, files=upload, headers=by(ours))).json()["id"]
    batch = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    made = (await keyed.http.post("/v1/batches", json=batch, headers=by(ours))).json()["id"]
    for method, path in (
        ("GET", f"/v1/jobs/{job}"),
        ("GET", f"/v1/jobs/{job}?wait=1"),
        ("GET", f"/v1/jobs/{job}/result"),
        ("GET", f"/v1/jobs/{job}/events"),
        ("POST", f"/v1/jobs/{job}/cancel"),
        ("POST", f"/v1/jobs/{job}/retry"),
        ("GET", f"/v1/files/{file}"),
        ("GET", f"/v1/files/{file}/content"),
        ("DELETE", f"/v1/files/{file}"),
        ("GET", f"/v1/batches/{made}"),
        ("POST", f"/v1/batches/{made}/cancel"),
    ):
        seen = [(await keyed.http.request(method, path, headers=by(key))).status_code for key in (theirs, ours)]
        assert seen[0] == 404 != seen[1], (method, path, seen)
    assert (await keyed.http.post("/v1/batches", json=batch, headers=by(theirs))).status_code == 404
    for path in ("/v1/jobs", "/v1/files", "/v1/batches"):
        assert (await keyed.http.get(path, headers=by(theirs))).json()["data"] == []
    again = await keyed.submit(wait=10, headers={**by(theirs), "Idempotency-Key": "one"}, tags=["x"])
    assert again.json()["id"] != job
    assert {job.caller for job in consumer.taken} == {"acme", "other"}


async def test_a_revoked_key_ends_soon_in_every_process(
    keyed: Api, start_api: Start, make: Make, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, second = make(), await start_api(auth=Auth.ON)
    for api in (keyed, second):
        assert (await api.http.get("/v1/jobs", headers=by(key))).status_code == 200
    await asyncio.to_thread(database.run, api_keys.revoke, key[:HINT_CHARS], NOW)
    assert (await keyed.http.get("/v1/jobs", headers=by(key))).status_code == 200  # for FRESH_S at most
    monkeypatch.setattr(auth, "FRESH_S", 0.0)
    for api in (keyed, second):
        answer = await api.http.get("/v1/jobs", headers=by(key))
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "key_revoked")
    await asyncio.to_thread(database.run, api_keys.disable, "acme", NOW, disabled=True)
    answer = await keyed.http.get("/v1/jobs", headers=by(make()))
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "tenant_disabled")


@pytest.mark.parametrize("ends", ["revoked", "disabled"])
async def test_what_goes_on_for_long_ends_with_its_key(
    keyed: Api, make: Make, idle_consumer: Consumer, database: Database, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setattr(auth, "FRESH_S", 0.0)
    monkeypatch.setattr(events, "LOOK_S", 0.01)
    key = make()
    job = (await keyed.submit(headers=by(key))).json()["id"]
    watch = f"{keyed.url.replace('http://', 'ws://')}/ws/cluster-status"
    async with (
        keyed.http.stream("GET", f"/v1/jobs/{job}/events", headers=by(key)) as stream,
        websockets.connect(watch, additional_headers=by(key)) as socket,
    ):
        told = stream.aiter_lines()
        assert await anext(told) == "event: queued"
        await socket.recv()
        if ends == "revoked":
            await asyncio.to_thread(database.run, api_keys.revoke, key[:HINT_CHARS], NOW)
        else:
            await asyncio.to_thread(database.run, api_keys.disable, "acme", NOW, disabled=True)
        assert "event: running" not in [line async for line in told]
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


async def test_a_page_of_another_site_reaches_nothing_where_nobody_is_asked(api: Api) -> None:
    elsewhere = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    # As a page sends it without the browser asking us first: a form, or a body of no type.
    hook = b'{"url": "https://evil.org/x", "inline": true}'
    for path in ("/v1/webhooks", "/v1/jobs", "/v1/webhook-secret/rotate", "/v1/embeddings"):
        answer = await api.http.post(path, content=hook, headers=elsewhere)
        assert answer.status_code == 403
        assert "page of another site" in answer.text
    own = {"Origin": api.url, "Sec-Fetch-Site": "same-origin"}
    assert (await api.http.get("/v1/webhooks", headers=own)).json()["data"] == []
    assert (await api.http.post("/v1/webhooks", content=hook, headers=own)).status_code == 201
    with pytest.raises(websockets.InvalidStatus) as refused:
        await websockets.connect(
            f"{api.url.replace('http://', 'ws://')}/ws/cluster-status", origin=Origin("https://a.b")
        )
    assert refused.value.response.status_code == 403
    # A name that a page's own server gave this machine.
    answer = await api.http.get("/v1/webhooks", headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "key_missing")


async def test_while_the_database_is_away_known_keys_go_on_and_others_wait(
    keyed: Api, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, unknown = make(), make()
    assert (await keyed.http.get("/v1/models", headers=by(known))).status_code == 200
    monkeypatch.setattr(auth, "FRESH_S", 0.0)

    async def away(*_: Any) -> None:
        raise StoreUnavailable

    monkeypatch.setattr(type(keyed.services.keys._database), "run", away)
    assert (await keyed.http.get("/v1/models", headers=by(known))).status_code == 200
    answer = await keyed.http.get("/v1/models", headers=by(unknown))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    monkeypatch.setattr(auth, "STALE_S", 0.0)
    assert (await keyed.http.get("/v1/models", headers=by(known))).status_code == 503


async def test_the_use_of_a_key_is_noted_once(keyed: Api, make: Make, database: Database, until: Until) -> None:
    key = make()
    for _ in range(3):
        await keyed.http.get("/v1/models", headers=by(key))

    def used() -> Any:
        return next(found.used_at for found in database.run(api_keys.keys, "acme"))

    await until(used)
    first = used()
    await keyed.http.get("/v1/models", headers=by(key))
    assert used() == first


async def test_the_jobs_of_a_tenant_are_kept_as_its_row_says(
    keyed: Api, make: Make, consumer: Consumer, database: Database
) -> None:
    ours, theirs = make("acme"), make("other")
    database.run(api_keys.limit, "acme", {}, 120)

    async def kept_s(key: str, **fields: Any) -> float:
        job = (await keyed.submit(wait=10, headers=by(key), **fields)).json()
        ends = [datetime.fromisoformat(job[name]) for name in ("finished_at", "expires_at")]
        return round((ends[1] - ends[0]).total_seconds())

    assert await kept_s(ours) == 120
    assert await kept_s(ours, retention_s=300) == 300
    assert await kept_s(theirs) == keyed.services.settings.default_retention_s


async def test_clients_of_others_get_their_own_envelope(keyed: Api, make: Make, consumer: Consumer) -> None:
    def embed(key: str) -> Any:
        with openai.OpenAI(base_url=f"{keyed.url}/v1", api_key=key, max_retries=0) as client:
            return client.embeddings.create(model="org/model", input="a")

    with pytest.raises(openai.AuthenticationError) as caught:
        await asyncio.to_thread(embed, "sk-wrong")
    assert caught.value.code == "invalid_api_key"
    assert len((await asyncio.to_thread(embed, make())).data) == 1
    with pytest.raises(openai.PermissionDeniedError):
        await asyncio.to_thread(embed, make("acme", Scope.READ))
    answer = await keyed.http.post("/v1/encode/org/model", json={"items": [{"text": "a"}]})
    assert answer.status_code == 401
    assert "Bearer" in answer.json()["detail"]["message"]
    async with httpx.AsyncClient(base_url=keyed.url) as plain:
        assert "error_type" in (await plain.post("/embed", json={"inputs": "a"})).json()
