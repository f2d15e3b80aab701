"""`client.jobs` of the peer's client, which no open server answers, and its quotes and recommendations."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest
from sie_sdk import SIEAsyncClient, SIEClient
from sie_sdk.client.errors import JobFailedError, RequestError

MODEL = "fake/vectors"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
TEXTS = [{"id": "d0", "text": "alpha"}, {"id": "d1", "text": "beta"}, "gamma"]
DOCUMENT = {"id": "p", "document": {"data": base64.b64encode(b"# A title\n\nA text.\n").decode(), "format": "md"}}


def run(client: SIEClient, **asked: Any) -> dict[str, Any]:
    submitted = client.jobs.submit(**asked)
    assert (submitted["object"], submitted["state"]) == ("job", "queued")
    assert client.jobs.wait(submitted["id"], poll_s=0.1, timeout_s=120)["id"] == submitted["id"]
    return dict(client.jobs.results(submitted["id"]))


def test_a_job_runs_to_its_results(url: str) -> None:
    with SIEClient(url, timeout_s=60) as client:
        found = run(client, source=TEXTS, model=MINILM, output_types=["dense"], options={"normalize": True})
        again = client.encode(MINILM, [{"text": "alpha"}, {"text": "beta"}, {"text": "gamma"}])
    assert (found["state"], found["total_items"], found["retrieved"], found["dims"]) == ("succeeded", 3, 3, 384)
    assert [item["id"] for item in found["items"]][:2] == ["d0", "d1"]
    assert all(item["success"] and item["units"] > 0 for item in found["items"])
    for item, one in zip(found["items"], again, strict=True):
        assert np.allclose(item["dense"], one["dense"], atol=1e-5)


def test_an_item_that_failed_says_why(url: str) -> None:
    with SIEClient(url) as client:
        found = run(client, source=["alpha", {"id": "bad", "text": " "}], model=MODEL)
    good, bad = found["items"]
    assert (good["success"], bad["success"], bad["id"]) == (True, False, "bad")
    assert (bad["error"]["code"], "empty" in bad["error"]["message"]) == ("INVALID_INPUT", True)


def test_a_job_that_failed_raises_if_asked_to(url: str) -> None:
    with SIEClient(url) as client:
        submitted = client.jobs.submit(source=[" ", " "], model=MODEL)
        with pytest.raises(JobFailedError) as caught:
            client.jobs.wait(submitted["id"], poll_s=0.1, raise_on_failure=True)
        assert (caught.value.state, caught.value.error_code) == ("failed", "INVALID_INPUT")
        assert [item["success"] for item in client.jobs.results(submitted["id"])["items"]] == [False, False]


@pytest.mark.parametrize(
    "asked",
    [
        {"operation": "generate", "model": "fake/writer", "source": "go on", "options": {"max_new_tokens": 4}},
        {"operation": "extract", "model": "docling", "source": [DOCUMENT]},
        {"operation": "extract", "model": "fake/parser", "source": "one page\ftwo pages"},
        {
            "operation": "score",
            "model": "roost/minilm-token-states",
            "source": ["alpha", "beta"],
            "options": {"query": "alpha"},
        },
    ],
)
def test_every_operation_runs(url: str, asked: dict[str, Any]) -> None:
    with SIEClient(url, timeout_s=120) as client:
        found = run(client, **asked)
    assert found["state"] == "succeeded"
    assert all(item["success"] for item in found["items"])


def test_a_job_is_listed_looked_at_and_cancelled(url: str) -> None:
    with SIEClient(url) as client:
        submitted = client.jobs.submit(source=TEXTS, model="fake/slow")
        assert submitted["id"] in [job["id"] for job in client.jobs.list()]
        cancelled = client.jobs.cancel(submitted["id"])
        assert (cancelled["state"], cancelled["outcome"]) == ("cancelled", "cancelled")
        assert client.jobs.get(submitted["id"])["state"] == "cancelled"
        with pytest.warns(UserWarning, match="retrieved 0 of 3"):
            assert client.jobs.results(submitted["id"])["items"] == []


def test_it_is_a_native_job(url: str) -> None:
    with SIEClient(url) as client:
        submitted = client.jobs.submit(source=TEXTS, model=MODEL)
    native = httpx.get(f"{url}/v1/jobs/{submitted['id']}", params={"wait": 30}).json()
    assert (native["verb"], native["lane"], native["status"]) == ("encode", "bulk", "succeeded")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"source": "s3://bucket/in/", "execution": "run", "idempotency_key": "k"}, "inline"),
        ({"source": ["x"], "options": {"normalise": True}}, "did you mean 'normalize'"),
        ({"source": [{"txt": "x"}]}, "did you mean 'text'"),
        ({"source": ["x"], "model": "fake/vectros"}, "Did you mean 'fake/vectors'"),
        ({"source": ["x"], "operation": "rank"}, "operation"),
    ],
)
def test_what_is_not_served_is_refused_by_name(url: str, asked: dict[str, Any], said: str) -> None:
    with SIEClient(url) as client, pytest.raises(RequestError, match=said):
        client.jobs.submit(**{"model": MODEL, **asked})


def test_no_job_has_a_plan(url: str) -> None:
    with SIEClient(url) as client:
        submitted = client.jobs.submit(source=["x"], model=MODEL)
        with pytest.raises(RequestError, match="no plan"):
            client.jobs.execute(submitted["id"], 1, "key")
        with pytest.raises(RequestError, match="no plan"):
            client.jobs.repair(submitted["id"], 1, 1, "key")


def test_an_unknown_job_and_one_that_runs_have_no_results(url: str) -> None:
    with SIEClient(url) as client:
        with pytest.raises(RequestError) as caught:
            client.jobs.get("job_1")
        assert (caught.value.status_code, caught.value.code) == (404, "JOB_NOT_FOUND")
        submitted = client.jobs.submit(source=TEXTS, model="fake/slow")
        with pytest.raises(RequestError) as caught:
            client.jobs.results(submitted["id"])
        assert caught.value.code == "job_not_terminal"
        client.jobs.cancel(submitted["id"])


async def test_the_async_client_runs_jobs(url: str) -> None:
    async with SIEAsyncClient(url) as client:
        submitted = await client.jobs.submit(source=TEXTS, model=MODEL)
        assert (await client.jobs.wait(submitted["id"], poll_s=0.1))["state"] == "succeeded"
        found = await client.jobs.results(submitted["id"])
        assert [item["dims"] for item in found["items"]] == [8, 8, 8]
        assert submitted["id"] in [job["id"] for job in await client.jobs.list()]
        with pytest.raises(RequestError, match="has already ended"):
            await client.jobs.cancel(submitted["id"])


def test_a_request_is_priced(url: str) -> None:
    with SIEClient(url) as client:
        quote = client.estimate(f"/v1/encode/{MINILM}", {"items": [{"text": "a text of some words"}]})
        with pytest.raises(RequestError, match="not in the catalog"):
            client.estimate("/v1/encode/none/such", {"items": [{"text": "x"}]})
    assert quote["identity"] == {"model": MINILM, "profile": "default", "operation": "encode", "region": "local"}
    assert (quote["estimated_credits"], quote["estimate_basis"]) == (0, "predicted_device_ms")
    assert quote["unit_ceilings"]["tokens"] >= 5
    assert quote["unit_ceilings"]["device_ms"] >= 1


def test_a_model_is_recommended_as_far_as_is_known(url: str) -> None:
    with SIEClient(url) as client:
        pick = client.recommend("embed")
        with pytest.raises(RequestError, match="Did you mean 'rerank'"):
            client.recommend("reranking")
    assert (pick["basis"], "best" in pick) == ("no_evidence", False)
    assert (pick["fast"]["available"], pick["fast"]["evidence_guarded"]) == (True, True)


async def test_the_async_client_prices_and_recommends(url: str) -> None:
    async with SIEAsyncClient(url) as client:
        quote = await client.estimate("/v1/jobs", {"operation": "encode", "model": MODEL, "items": ["x"]})
        pick = await client.recommend("rerank", target_language="ja_JP")
    assert quote["unit_ceilings"]["items"] == 1
    assert "target_language" not in pick
