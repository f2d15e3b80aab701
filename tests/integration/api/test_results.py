"""Results: any form, as often as one likes, from any process."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
import pytest
from sqlalchemy import text

from api.schemas import FailedResult, ResultObject

if TYPE_CHECKING:
    from tasks.db import Database
    from tests.integration.api.conftest import Api, Consumer, Start


LOOKS = {"self": "get", "result": "get", "events": "get", "cancel": "post", "retry": "post"}


async def ended(api: Api, *items: Any, **fields: Any) -> dict[str, Any]:
    job: dict[str, Any] = (await api.submit(*items, wait=10, **fields)).json()
    assert job["finished_at"], job
    return job


async def test_a_result_can_be_fetched_twice_and_from_another_process(start_api: Start, consumer: Consumer) -> None:
    one, other = await start_api(), await start_api()
    job = await ended(one, "cat")
    first, second = await other.http.get(job["urls"]["result"]), await one.http.get(job["urls"]["result"])
    assert first.status_code == second.status_code == 200
    assert first.content == second.content
    ResultObject.model_validate(first.json())


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "binary", "ubinary"])
async def test_all_forms_tell_the_same_numbers(api: Api, consumer: Consumer, dtype: str) -> None:
    job = await ended(api, "cat", options={"output_dtype": dtype})
    kind = {"float32": "<f4", "float16": "<f2", "int8": "i1", "uint8": "u1", "binary": "i1", "ubinary": "u1"}[dtype]
    url = job["urls"]["result"]
    floats = (await api.http.get(url)).json()["items"][0]["dense"]
    packed = (await api.http.get(url, params={"encoding": "base64"})).json()["items"][0]["dense"]
    binary = await api.http.get(url, headers={"Accept": "application/msgpack"})
    assert binary.headers["content-type"] == "application/msgpack"
    raw = msgpack.unpackb(binary.content)["items"][0]["dense"]
    assert base64.b64decode(packed["values"]) == raw["values"]
    assert np.array(floats["values"], dtype=kind).tobytes() == raw["values"]
    assert floats["dims"] == packed["dims"] == raw["dims"] == 8
    assert len(floats["values"]) == (1 if dtype.endswith("binary") else 8)


@pytest.mark.parametrize("dimensions", [2, 4, 8])
async def test_a_shorter_vector_has_its_length_and_norm_one(api: Api, consumer: Consumer, dimensions: int) -> None:
    job = await ended(api, "a longer text", options={"dimensions": dimensions})
    values = np.array(job["result"]["items"][0]["dense"]["values"])
    assert len(values) == dimensions
    assert np.linalg.norm(values) == pytest.approx(1.0, abs=1e-6)


async def test_a_waiting_call_may_ask_for_any_form(api: Api, consumer: Consumer) -> None:
    body = {"verb": "encode", "model": "org/model", "items": ["cat"]}
    prefer = {"Prefer": "wait=10"}
    packed = await api.http.post("/v1/jobs", params={"encoding": "base64"}, json=body, headers=prefer)
    binary = await api.http.post("/v1/jobs", json=body, headers={**prefer, "Accept": "application/msgpack"})
    values = msgpack.unpackb(binary.content)["result"]["items"][0]["dense"]["values"]
    assert base64.b64decode(packed.json()["result"]["items"][0]["dense"]["values"]) == values
    taken = await api.http.post("/v1/jobs", json=body, headers={"Accept": "application/msgpack"})
    assert (taken.status_code, msgpack.unpackb(taken.content)["status"]) == (202, "queued")


async def test_a_form_that_there_is_not_is_a_406(api: Api, consumer: Consumer) -> None:
    job = await ended(api, "cat")
    response = await api.http.get(job["urls"]["result"], headers={"Accept": "text/csv"})
    assert (response.status_code, response.json()["error"]["code"]) == (406, "not_acceptable")
    refused = await api.submit("cat", headers={"Accept": "text/csv"})
    assert refused.status_code == 406


async def test_an_unknown_encoding_is_a_422(api: Api, consumer: Consumer) -> None:
    job = await ended(api, "cat")
    response = await api.http.get(job["urls"]["result"], params={"encoding": "hex"})
    assert (response.status_code, response.json()["error"]["param"]) == (422, "encoding")


async def test_a_job_that_has_not_ended_has_no_result_yet(api: Api) -> None:
    job = (await api.submit("cat")).json()
    response = await api.http.get(job["urls"]["result"])
    assert (response.status_code, response.json()["error"]["code"]) == (409, "not_finished")


async def test_a_cancelled_job_has_no_result(api: Api) -> None:
    job = (await api.submit("cat")).json()
    await api.http.post(job["urls"]["cancel"])
    response = await api.http.get(job["urls"]["result"])
    failed = FailedResult.model_validate(response.json())
    assert (response.status_code, failed.status, failed.error.code) == (409, "cancelled", "cancelled")
    assert failed.error.job_id == job["id"]


async def test_a_failed_job_tells_its_error_and_its_items(api: Api, consumer: Consumer) -> None:
    job = await ended(api, {"id": "a", "text": ""}, "")
    response = await api.http.get(job["urls"]["result"])
    failed = FailedResult.model_validate(response.json())
    assert (response.status_code, failed.status) == (422, "failed")
    assert failed.items is not None
    assert [item.id for item in failed.items] == ["a", None]


async def test_a_job_is_gone_once_its_retention_is_over(api: Api, consumer: Consumer, database: Database) -> None:
    urls = (await ended(api, "cat", retention_s=60))["urls"]
    over = text("UPDATE jobs SET expires_at = now() - interval '1 s'")
    await asyncio.to_thread(database.run, lambda connection: connection.execute(over) and None)
    answers = {name: await getattr(api.http, verb)(urls[name]) for name, verb in LOOKS.items()}
    assert {name: answer.status_code for name, answer in answers.items()} == {
        "self": 404,
        "result": 410,
        "events": 404,
        "cancel": 404,
        "retry": 404,
    }
    assert {answer.json()["error"]["code"] for answer in answers.values()} == {"job_not_found", "result_expired"}
