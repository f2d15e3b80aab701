from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from api.compat.sie.estimate import SieEstimate
from api.compat.sie.recommend import STAND_IN, TASKS, SieRecommendation, told
from catalog.loader import Catalog

if TYPE_CHECKING:
    from tests.integration.api.conftest import Api

ITEMS = [{"text": "one two three"}, {"text": "four"}]


@pytest.mark.parametrize(
    ("endpoint", "body", "operation"),
    [
        ("/v1/encode/org/model", {"items": ITEMS}, "encode"),
        ("/v1/encode/org__model:small", {"items": ITEMS}, "encode"),
        ("/v1/embeddings", {"model": "org/model", "input": ["one two three", "four"]}, "encode"),
        ("/v1/jobs", {"verb": "encode", "model": "org/model", "items": ITEMS}, "encode"),
        ("/v1/jobs", {"operation": "encode", "model": "org/model", "items": ITEMS}, "encode"),
    ],
)
async def test_a_request_is_priced_as_its_job_would_be(
    api: Api, endpoint: str, body: dict[str, Any], operation: str
) -> None:
    response = await api.http.post("/v1/estimate", json={"endpoint": endpoint, "request": body})
    assert response.status_code == 200, response.text
    quote = SieEstimate.model_validate(response.json())
    job = (await api.submit(*ITEMS)).json()
    assert quote.predicted_ms == job["cost"]["predicted_ms"]
    assert quote.unit_ceilings["items"] == 2
    assert quote.unit_ceilings["tokens"] > 2
    assert (quote.identity.model, quote.identity.operation) == ("org/model", operation)
    assert quote.identity.profile == ("small" if "small" in endpoint else "default")
    assert (quote.estimated_credits, quote.items_refused) == (0, 0)


async def test_nothing_is_kept(api: Api) -> None:
    body = {"endpoint": "/v1/encode/org/model", "request": {"items": [*ITEMS, {"text": " "}]}}
    quote = (await api.http.post("/v1/estimate", json=body)).json()
    assert quote["items_refused"] == 1
    assert (await api.http.get("/v1/jobs")).json()["data"] == []


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"endpoint": "/v1/encode/org/modle", "request": {"items": ITEMS}}, 404, "model"),
        ({"endpoint": "/v1/encode/org/model", "request": {"items": []}}, 400, "items"),
        ({"endpoint": "/v1/models", "request": {}}, 400, "endpoint"),
        ({"endpoint": "encode", "request": {}}, 400, "endpoint"),
        ({"endpoint": "/v1/jobs"}, 400, "request"),
        ({"endpoint": "/v1/jobs", "request": {}, "reqest": {}}, 400, "reqest"),
    ],
)
async def test_what_the_route_would_refuse_is_refused(api: Api, body: dict[str, Any], status: int, param: str) -> None:
    response = await api.http.post("/v1/estimate", json=body)
    assert (response.status_code, response.json()["detail"]["param"]) == (status, param), response.text


async def test_a_task_that_no_model_does_has_no_pick(api: Api) -> None:
    response = await api.http.post("/v1/recommend", json={"task": "rerank", "target_language": "ja_JP"})
    assert response.status_code == 200
    assert response.json() == {
        "task": "rerank",
        "label": "Scores of documents by a query",
        "basis": "no_evidence",
        "shared_benchmarks": [],
        "others": [],
    }


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"task": "reranking"}, 404, "Did you mean 'rerank'?"),
        ({"task": ""}, 400, "at least 1 character"),
        ({"task": "rerank", "target_language": 3}, 400, "string"),
    ],
)
async def test_an_unknown_task_is_refused(api: Api, body: dict[str, Any], status: int, said: str) -> None:
    response = await api.http.post("/v1/recommend", json=body)
    assert response.status_code == status
    assert said in response.json()["detail"]["message"]


def test_every_task_has_a_model_in_the_catalog() -> None:
    specs = Catalog.load().specs
    for task, (label, does) in TASKS.items():
        able = [spec for spec in specs if not spec.family.startswith(STAND_IN) and does(spec)]
        answer = SieRecommendation.model_validate(told(task, label, able))
        assert answer.fast is not None, task
        assert answer.fast.model == able[0].id
