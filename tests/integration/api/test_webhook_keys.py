"""What keys may do with webhooks, by their scopes and once they are revoked."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from api import auth
from tasks.api_keys import HINT_CHARS, Scope
from tasks.db import Database
from tasks.service_settings import Auth
from tasks.store import api_keys
from tests.integration.api.conftest import Consumer, Start
from tests.integration.api.test_keys import Make, by, make

__all__ = ["make"]

URL = "https://hooks.example.org/in"


async def test_who_looks_changes_nothing_and_sees_no_secret(start_api: Start, make: Make) -> None:
    api = await start_api(auth=Auth.ON)
    reads, writes = by(make("acme", Scope.READ)), by(make("acme", Scope.WRITE))
    made = (await api.http.post("/v1/webhooks", json={"url": URL}, headers=writes)).json()
    sent = (await api.http.post(f"/v1/webhooks/{made['id']}/test", headers=writes)).json()
    endpoint, delivery = f"/v1/webhooks/{made['id']}", f"/v1/deliveries/{sent['id']}"
    for path in ("/v1/webhooks", endpoint, "/v1/deliveries", delivery):
        seen = [await api.http.get(path, headers=key) for key in (reads, writes)]
        assert [answer.status_code for answer in seen] == [200, 403], path
        assert "secret" not in seen[0].text.replace("old_secret_until", "")

    job = {"verb": "encode", "model": "org/model", "items": ["a"], "webhook": {"url": URL}}
    bodies: list[tuple[str, str, Any]] = [
        ("POST", "/v1/jobs", job),
        ("POST", "/v1/webhooks", {"url": URL}),
        ("PATCH", endpoint, {"inline": True}),
        ("POST", f"{endpoint}/redeliver", {"since": "2026-05-01T08:00:00Z"}),
        ("GET", "/v1/webhook-secret", None),
        ("POST", "/v1/webhook-secret/rotate", None),
        ("POST", f"{delivery}/redeliver", None),
        *(("POST", f"{endpoint}/{verb}", None) for verb in ("rotate", "test", "disable", "enable")),
        ("DELETE", endpoint, None),
    ]
    for method, path, body in bodies:
        refused = await api.http.request(method, path, json=body, headers=reads)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "scope_missing"), path
    assert (await api.http.get(endpoint, headers=reads)).json() == {k: v for k, v in made.items() if k != "secret"}
    for method, path, body in bodies:
        assert (await api.http.request(method, path, json=body, headers=writes)).is_success, path


async def test_a_revoked_key_is_let_in_no_more_and_its_tenant_is_told_as_before(
    start_api: Start, make: Make, consumer: Consumer, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, key, other = await start_api(auth=Auth.ON), make("acme"), by(make("acme"))
    made = (await api.http.post("/v1/webhooks", json={"url": URL}, headers=by(key))).json()
    # In a thread of its own: the API, in this one, may be writing down that the key was used.
    await asyncio.to_thread(database.run, api_keys.revoke, key[:HINT_CHARS], datetime.now(UTC))
    monkeypatch.setattr(auth, "FRESH_S", 0.0)
    for method, path in (
        ("GET", "/v1/webhooks"),
        ("GET", "/v1/webhook-secret"),
        ("POST", f"/v1/webhooks/{made['id']}/rotate"),
        ("DELETE", f"/v1/webhooks/{made['id']}"),
    ):
        answer = await api.http.request(method, path, headers=by(key))
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "key_revoked"), path
    assert (await api.submit(wait=10, headers=other)).json()["status"] == "succeeded"
    (told,) = (await api.http.get("/v1/deliveries", headers=other)).json()["data"]
    assert (told["webhook"], told["type"]) == (made["id"], "job.succeeded")
