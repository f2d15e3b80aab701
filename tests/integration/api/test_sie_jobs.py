from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgpack
import numpy as np
import pytest

from api.compat.sie import chunks
from api.compat.sie.jobs import SieJob, SieJobList, SieSubmitted
from tasks import keys
from tasks.notices import Change, pack_changes

if TYPE_CHECKING:
    import redis

    from tests.integration.api.conftest import Api, Consumer, Start

SIE = {"x-sie-sdk-version": "0.10.1"}
BODY: dict[str, Any] = {"operation": "encode", "model": "org/model", "items": [{"id": "a", "text": "one"}, "two"]}


async def submitted(api: Api, **more: Any) -> SieSubmitted:
    response = await api.http.post("/v1/jobs", json={**BODY, **more}, headers=SIE)
    assert response.status_code == 201, response.text
    return SieSubmitted.model_validate(response.json())


async def looked(api: Api, id_: str) -> SieJob:
    return SieJob.model_validate((await api.http.get(f"/v1/jobs/{id_}", headers=SIE)).json())


async def ended(api: Api, id_: str) -> SieJob:
    assert (await api.http.get(f"/v1/jobs/{id_}?wait=10")).json()["status"] != "running"
    return await looked(api, id_)


async def test_a_job_runs_and_its_result_is_read_without_credentials(api: Api, consumer: Consumer) -> None:
    job = await submitted(api, output_types=["dense"], options={"normalize": True})
    assert (job.state, job.total_items, job.chunks, job.operation) == ("queued", 2, 1, "encode")
    done = await ended(api, job.id)
    assert (done.state, done.phase, done.outcome, done.completed_items) == ("succeeded", "ended", "succeeded", 2)
    (chunk,) = done.output.chunks
    assert (chunk.seq, chunk.items, chunk.state, chunk.error) == (0, 2, "succeeded", None)
    response = await api.http.get(chunk.ref or "")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/octet-stream")
    one, two = msgpack.unpackb(response.content)
    assert (one["id"], one["success"], one["item_index"], one["request_id"]) == ("a", True, 0, job.id)
    assert (two["id"], two["work_item_id"]) == (None, f"{job.id}/1")
    dense = msgpack.unpackb(one["result_msgpack"])["dense"]
    assert (dense["dims"], dense["values"][b"type"], dense["values"][b"shape"]) == (8, "<f4", [8])
    told = (await api.http.get(f"/v1/jobs/{job.id}/result")).json()["items"][0]["dense"]["values"]
    assert np.allclose(np.frombuffer(dense["values"][b"data"], "<f4"), told)


async def test_it_is_a_native_job_in_the_bulk_lane(api: Api) -> None:
    job = await submitted(api)
    native = (await api.http.get(f"/v1/jobs/{job.id}")).json()
    assert (native["verb"], native["lane"], native["items"], native["status"]) == ("encode", "bulk", 2, "queued")
    ours = (await api.submit("three")).json()
    listed = SieJobList.model_validate((await api.http.get("/v1/jobs", headers=SIE)).json()).data
    assert [one.id for one in listed] == [ours["id"], job.id]


async def test_the_body_alone_tells_whose_it_is(api: Api) -> None:
    response = await api.http.post("/v1/jobs", json=BODY)
    assert (response.status_code, response.json()["state"]) == (201, "queued")
    response = await api.http.post("/v1/jobs", json={**BODY, "items": []})
    assert (response.status_code, response.json()["error"]["param"]) == (422, "items")


async def test_a_job_is_cancelled(api: Api) -> None:
    job = await submitted(api)
    assert [chunk.ref for chunk in (await looked(api, job.id)).output.chunks] == [None]
    for _ in range(2):
        response = await api.http.post(f"/v1/jobs/{job.id}/cancel", headers=SIE)
        assert SieJob.model_validate(response.json()).state == "cancelled"
    assert [chunk.ref for chunk in (await looked(api, job.id)).output.chunks] == [None]


async def test_an_ended_job_is_not_cancelled(api: Api, consumer: Consumer) -> None:
    job = await submitted(api)
    await ended(api, job.id)
    response = await api.http.post(f"/v1/jobs/{job.id}/cancel", headers=SIE)
    assert (response.status_code, response.json()["detail"]["code"]) == (409, "ALREADY_FINISHED")


async def test_a_failed_item_says_why_and_its_neighbours_are_there(api: Api, consumer: Consumer) -> None:
    job = await submitted(api, items=["one", " "])
    done = await ended(api, job.id)
    assert (done.state, done.outcome) == ("succeeded", "partial")
    good, bad = msgpack.unpackb((await api.http.get(done.output.chunks[0].ref or "")).content)
    assert (good["success"], good["error"], bad["success"], bad["error_code"]) == (True, None, False, "INVALID_INPUT")
    assert bad["result_msgpack"] is None


async def test_a_job_whose_items_all_failed_has_a_result_that_says_why(api: Api, consumer: Consumer) -> None:
    job = await submitted(api, items=[" ", " "])
    done = await ended(api, job.id)
    assert (done.state, done.outcome, done.error_code) == ("failed", "failed", "INFERENCE_ERROR")
    rows = msgpack.unpackb((await api.http.get(done.output.chunks[0].ref or "")).content)
    assert [row["error_code"] for row in rows] == ["INVALID_INPUT", "INVALID_INPUT"]


async def test_a_result_is_cut_into_chunks(api: Api, consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ITEMS", 2)
    job = await submitted(api, items=[f"text {n}" for n in range(5)])
    assert job.chunks == 3
    done = await ended(api, job.id)
    assert [chunk.items for chunk in done.output.chunks] == [2, 2, 1]
    rows = [row for c in done.output.chunks for row in msgpack.unpackb((await api.http.get(c.ref or "")).content)]
    assert [row["item_index"] for row in rows] == list(range(5))


async def test_a_link_is_good_in_every_process_and_nowhere_else(start_api: Start, consumer: Consumer) -> None:
    one, other = await start_api(), await start_api()
    job = await submitted(one)
    ref = (await ended(one, job.id)).output.chunks[0].ref or ""
    assert (await other.http.get(ref.replace(one.url, other.url))).status_code == 200
    seconds = int(ref.partition("expires=")[2].partition("&")[0])
    assert time.time() < seconds <= time.time() + chunks.LINK_S
    forged = (
        ref[:-1] + ("0" if ref[-1] != "0" else "1"),
        ref.replace(f"expires={seconds}", f"expires={seconds + 1}"),
        ref.replace("/chunks/0", "/chunks/1"),
        ref.replace(job.id, str(UUID(int=7))),
        ref.partition("?")[0],
    )
    for link in forged:
        response = await one.http.get(link)
        assert (response.status_code, response.json()["detail"]["code"]) == (404, "RESULT_NOT_FOUND"), link


async def test_a_link_expires(api: Api, consumer: Consumer) -> None:
    job = await submitted(api)
    await ended(api, job.id)
    key = await api.services.signing.key(chunks.SECRET)
    for expires, status in ((int(time.time()) - 1, 404), (int(time.time()) + 60, 200)):
        assert (await api.http.get(chunks.link(api.url, key, UUID(job.id), 0, expires))).status_code == status


async def test_a_link_to_a_job_that_runs_again_leads_to_none(api: Api) -> None:
    job = await submitted(api)
    key = await api.services.signing.key(chunks.SECRET)
    response = await api.http.get(chunks.link(api.url, key, UUID(job.id), 0, int(time.time()) + 60))
    assert (response.status_code, response.json()["detail"]["code"]) == (409, "job_not_terminal")


async def test_every_process_hears_how_far_a_job_has_come(start_api: Start, broker: redis.Redis) -> None:
    one, other = await start_api(), await start_api()
    id_ = UUID((await submitted(one)).id)
    for api in (one, other):
        with api.services.waiting.open(id_, ends_only=False) as waiter:
            broker.publish(keys.CHANGES, pack_changes([Change(id_, "running", 2, 2)]))
            await waiter.next(asyncio.get_running_loop().time() + 10)
        assert api.services.progress.of(id_) == 2


async def test_a_key_leads_to_the_job_before(api: Api) -> None:
    headers = {**SIE, "idempotency-key": "k"}
    first = (await api.http.post("/v1/jobs", json=BODY, headers=headers)).json()
    again = await api.http.post("/v1/jobs", json=BODY, headers=headers)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    assert SieJob.model_validate(again.json()).id == first["id"]
    other = await api.http.post("/v1/jobs", json={**BODY, "items": ["x"]}, headers=headers)
    assert (other.status_code, other.json()["detail"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"src": "s3://bucket/in/", "items": None}, 400, "INVALID_INPUT", "src"),
        ({"sink": "inplace"}, 400, "INVALID_INPUT", "sink"),
        ({"operation": "enocde"}, 400, "INVALID_INPUT", "operation"),
        ({"operation": None}, 400, "INVALID_INPUT", "operation"),
        ({"model": "org/modle"}, 404, "MODEL_NOT_FOUND", "model"),
        ({"items": []}, 400, "INVALID_INPUT", "items"),
        ({"items": [{"txt": "x"}]}, 400, "INVALID_INPUT", "items[0].txt"),
        ({"items": ["x"] * 65}, 413, "INPUT_TOO_LONG", "items"),
        ({"output_types": ["spares"]}, 400, "INVALID_INPUT", "output_types[0]"),
        ({"output_typse": ["dense"]}, 400, "INVALID_INPUT", "output_typse"),
        ({"options": {"normalise": True}}, 400, "INVALID_INPUT", "options.normalise"),
        ({"options": {"profile": "none"}}, 404, "MODEL_NOT_FOUND", "model"),
        ({"options": []}, 400, "INVALID_INPUT", "options"),
    ],
)
async def test_a_bad_job_is_refused_by_its_field(
    api: Api, body: dict[str, Any], status: int, code: str, param: str
) -> None:
    response = await api.http.post("/v1/jobs", json={**BODY, **body}, headers=SIE)
    detail = response.json()["detail"]
    assert (response.status_code, detail["code"], detail["param"]) == (status, code, param), detail


async def test_a_profile_is_part_of_the_model(api: Api) -> None:
    assert (await submitted(api, options={"profile": "small"})).model == "org/model:small"
    assert (await submitted(api, options={"profile": "default"})).model == "org/model"


@pytest.mark.parametrize("path", ["", "/cancel", "/execute", "/repair"])
async def test_an_unknown_job_is_a_404(api: Api, path: str) -> None:
    for id_ in (UUID(int=7), "job_1"):
        response = await api.http.request("POST" if path else "GET", f"/v1/jobs/{id_}{path}", headers=SIE)
        assert (response.status_code, response.json()["detail"]["code"]) == (404, "JOB_NOT_FOUND")


async def test_no_job_has_a_plan(api: Api) -> None:
    job = await submitted(api)
    for path in ("execute", "repair"):
        response = await api.http.post(f"/v1/jobs/{job.id}/{path}", json={"plan_revision": 1}, headers=SIE)
        assert (response.status_code, response.json()["detail"]["code"]) == (409, "JOB_HAS_NO_PLAN")
