"""Endpoints, webhooks of jobs and deliveries, by the routes of a real process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tasks.db import Database
from tasks.service_settings import Auth
from tasks.store import deliveries
from tasks.webhooks.endpoint import MOST_ENDPOINTS, Due
from tasks.webhooks.signing import new_secret, shown_secret
from tests.integration.api.conftest import Api, Consumer, Start
from tests.integration.api.test_keys import Make, by, make

__all__ = ["make"]

URL = "https://hooks.example.org/in?token=s3cret"
INSIDE = "http://169.254.169.254/latest"


def claimed(database: Database) -> list[Due]:
    """What a sender would take now."""
    now = datetime.now(UTC) + timedelta(seconds=1)
    given: dict[str, Any] = {
        "most": 100,
        "more": 100,
        "each": 8,
        "room": {},
        "share": 100,
        "share_of_more": 100,
        "held": {},
    }
    return database.run(deliveries.claim, now, timedelta(minutes=1), **given)


async def create(api: Api, **fields: Any) -> dict[str, Any]:
    answer = await api.http.post("/v1/webhooks", json={"url": URL, **fields})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_an_endpoint_from_its_beginning_to_its_end(api: Api) -> None:
    made = await create(api, events=["job.failed", "batch.*"], description="ours")
    path = f"/v1/webhooks/{made['id']}"
    secret = made.pop("secret")
    assert secret.startswith("whsec_")
    assert (await api.http.get(path)).json() == made
    assert (await api.http.get("/v1/webhooks")).json()["data"] == [made]

    changed = (await api.http.patch(path, json={"events": ["*"], "inline": True})).json()
    assert changed == made | {"events": ["*"], "inline": True}
    rotated = (await api.http.post(f"{path}/rotate")).json()
    assert rotated["secret"] not in {None, secret}
    assert rotated["old_secret_until"] is not None
    own = shown_secret(new_secret())
    assert (await api.http.post(f"{path}/rotate", json={"secret": own})).json()["secret"] == own

    disabled = (await api.http.post(f"{path}/disable")).json()
    assert (disabled["status"], disabled["disabled_why"]) == ("disabled", "by its owner")
    refused = await api.http.post(f"{path}/test")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "endpoint_disabled")
    assert (await api.http.post(f"{path}/enable")).json()["status"] == "enabled"
    assert (await api.http.delete(path)).status_code == 204
    assert (await api.http.get(path)).json()["error"]["code"] == "endpoint_not_found"


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"url": INSIDE}, 422, "url_refused", "url"),
        ({"url": "http://example.org/"}, 422, "url_refused", "url"),
        ({"url": "https://me:pw@example.org/"}, 422, "url_refused", "url"),
        ({}, 422, "invalid_request", "url"),
        ({"url": URL, "secret": "whsec_short"}, 422, "secret_invalid", "secret"),
        ({"url": URL, "secret": "0" * 40}, 422, "secret_invalid", "secret"),
        ({"url": URL, "events": ["job.succeed"]}, 422, "invalid_request", "events[0]"),
        ({"url": URL, "events": []}, 422, "invalid_request", "events"),
        ({"url": URL, "event": ["*"]}, 422, "invalid_request", "event"),
        ([], 422, "invalid_request", None),
    ],
)
async def test_what_is_wrong_is_named(api: Api, body: Any, status: int, code: str, param: str | None) -> None:
    answer = await api.http.post("/v1/webhooks", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error.get("param")) == (status, code, param), answer.text
    assert "pw" not in error["message"]
    assert "169.254" not in error["message"]
    assert (await api.http.get("/v1/webhooks")).json()["data"] == []


async def test_an_unknown_event_and_field_lead_to_the_nearest(api: Api) -> None:
    answer = await api.http.post("/v1/webhooks", json={"url": URL, "events": ["job.suceeded"]})
    assert "'job.succeeded'" in answer.json()["error"]["message"]
    answer = await api.http.post("/v1/webhooks", json={"url": URL, "secrt": "x"})
    assert "'secret'" in answer.json()["error"]["message"]


async def test_a_caller_has_so_many_endpoints_and_no_more(api: Api) -> None:
    for _ in range(MOST_ENDPOINTS):
        await create(api)
    answer = await api.http.post("/v1/webhooks", json={"url": URL})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "limit_exceeded")
    first = (await api.http.get("/v1/webhooks", params={"limit": 30})).json()
    rest = (await api.http.get("/v1/webhooks", params={"limit": 30, "after": first["last_id"]})).json()
    assert (first["has_more"], rest["has_more"]) == (True, False)
    assert len({one["id"] for one in first["data"] + rest["data"]}) == MOST_ENDPOINTS


async def test_a_job_that_names_a_receiver_has_its_row_first_and_its_own_secret(
    api: Api, consumer: Consumer, database: Database
) -> None:
    secret = new_secret()
    hook = {"url": URL, "secret": shown_secret(secret), "inline": True}
    job = (await api.submit(wait=10, webhook=hook)).json()
    assert job["status"] == "succeeded"
    assert [taken.stored for taken in consumer.taken] == [True]
    plain = (await api.submit(wait=10, webhook={"url": URL})).json()
    dues = {str(due.object): due for due in claimed(database)}
    assert (dues[job["id"]].keys, dues[job["id"]].inline, dues[job["id"]].url) == ((secret,), True, URL)
    own = (await api.http.get("/v1/webhook-secret")).json()["secret"]
    assert [shown_secret(key) for key in dues[plain["id"]].keys] == [own]
    changed = (await api.http.post("/v1/webhook-secret/rotate")).json()["secret"]
    assert changed != own
    assert (await api.http.get("/v1/webhook-secret")).json()["secret"] == changed


@pytest.mark.parametrize(
    ("hook", "code", "param"),
    [
        ({"url": "https://localhost/"}, "url_refused", "webhook.url"),
        ({"url": "https://[::ffff:10.0.0.1]/"}, "url_refused", "webhook.url"),
        ({"url": URL, "secret": "mine"}, "secret_invalid", "webhook.secret"),
        ({"url": URL, "secrets": "x"}, "invalid_request", "webhook.secrets"),
        (URL, "invalid_request", "webhook"),
    ],
)
async def test_a_wrong_receiver_of_a_job_is_refused_and_no_job_made(api: Api, hook: Any, code: str, param: str) -> None:
    answer = await api.submit(webhook=hook)
    assert (answer.status_code, answer.json()["error"]["code"], answer.json()["error"]["param"]) == (422, code, param)
    assert (await api.http.get("/v1/jobs")).json()["data"] == []


async def test_deliveries_are_listed_and_sent_again(api: Api, consumer: Consumer, database: Database) -> None:
    made = await create(api, events=["job.succeeded"])
    jobs = [(await api.submit(wait=10)).json()["id"] for _ in range(3)]
    test = (await api.http.post(f"/v1/webhooks/{made['id']}/test")).json()
    assert (test["type"], test["of"], test["status"]) == ("webhook.test", made["id"], "pending")

    listed = (await api.http.get("/v1/deliveries", params={"type": "job.succeeded"})).json()
    assert [one["of"] for one in listed["data"]] == jobs[::-1]
    assert {one["webhook"] for one in listed["data"]} == {made["id"]}
    one = (await api.http.get("/v1/deliveries", params={"of": jobs[0]})).json()["data"]
    assert [found["of"] for found in one] == [jobs[0]]
    first = (await api.http.get("/v1/deliveries", params={"limit": 3, "webhook": made["id"]})).json()
    rest = (await api.http.get("/v1/deliveries", params={"limit": 3, "after": first["last_id"]})).json()
    assert (len(first["data"]), first["has_more"], len(rest["data"]), rest["has_more"]) == (3, True, 1, False)

    await api.http.post(f"/v1/webhooks/{made['id']}/disable")
    dropped = (await api.http.get(f"/v1/deliveries/{one[0]['id']}")).json()
    assert (dropped["status"], dropped["tried"]) == ("dropped", [])
    assert (await api.http.post(f"/v1/deliveries/{one[0]['id']}/redeliver")).status_code == 409
    await api.http.post(f"/v1/webhooks/{made['id']}/enable")
    since = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    again = (await api.http.post(f"/v1/webhooks/{made['id']}/redeliver", json={"since": since})).json()
    assert again == {"redelivered": 4, "last_id": test["id"], "has_more": False}
    assert len(claimed(database)) == 4
    assert (await api.http.post(f"/v1/deliveries/{one[0]['id']}/redeliver")).status_code == 202
    assert [due.tries for due in claimed(database)] == [1]
    body = {"since": since, "status": ["pending"], "after": one[0]["id"]}
    beyond = (await api.http.post(f"/v1/webhooks/{made['id']}/redeliver", json=body)).json()
    assert beyond == {"redelivered": 3, "last_id": test["id"], "has_more": False}
    wrong = await api.http.post(f"/v1/webhooks/{made['id']}/redeliver", json={**body, "after": "x"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (422, "after")


@pytest.mark.parametrize(
    "query", ["webhook=x", "of=x", "after=x", "status=sent", "kind=x", "limit=0", "type=%00", "type=job.*"]
)
async def test_a_wrong_filter_is_named(api: Api, query: str) -> None:
    answer = await api.http.get(f"/v1/deliveries?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, query.partition("=")[0])


async def test_an_event_that_is_none_leads_to_the_nearest(api: Api) -> None:
    answer = await api.http.get("/v1/deliveries", params={"type": "job.suceeded"})
    assert "'job.succeeded'" in answer.json()["error"]["message"]
    answer = await api.http.get("/v1/deliveries", params={"type": "webhook.test"})
    assert answer.json()["data"] == []


async def test_a_tenant_sees_and_moves_nothing_of_another(start_api: Start, make: Make, consumer: Consumer) -> None:
    api = await start_api(auth=Auth.ON)
    ours, theirs = by(make("acme")), by(make("other"))
    made = (await api.http.post("/v1/webhooks", json={"url": URL}, headers=ours)).json()
    for headers in (ours, theirs):
        assert (await api.submit(wait=10, headers=headers)).json()["status"] == "succeeded"
    (delivery,) = (await api.http.get("/v1/deliveries", headers=ours)).json()["data"]
    for path in ("/v1/webhooks", "/v1/deliveries"):
        assert (await api.http.get(path, headers=theirs)).json()["data"] == []
    endpoint, sent = f"/v1/webhooks/{made['id']}", f"/v1/deliveries/{delivery['id']}"
    since = {"since": datetime.now(UTC).isoformat()}
    for method, path, body in (
        ("GET", endpoint, None),
        ("PATCH", endpoint, {"inline": True}),
        ("POST", f"{endpoint}/rotate", None),
        ("POST", f"{endpoint}/test", None),
        ("POST", f"{endpoint}/disable", None),
        ("POST", f"{endpoint}/enable", None),
        ("POST", f"{endpoint}/redeliver", since),
        ("GET", sent, None),
        ("POST", f"{sent}/redeliver", None),
        ("DELETE", endpoint, None),
    ):
        seen = [(await api.http.request(method, path, json=body, headers=key)).status_code for key in (theirs, ours)]
        assert seen[0] == 404 != seen[1], (method, path, seen)
    secrets = [(await api.http.get("/v1/webhook-secret", headers=key)).json()["secret"] for key in (ours, theirs)]
    assert secrets[0] != secrets[1]
