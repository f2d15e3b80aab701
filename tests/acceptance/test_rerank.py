"""Cohere's own clients, sync and async, v1 and v2; and rerank in Jina's shape and the peer's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cohere
import httpx
import pytest
from cohere.core.api_error import ApiError

from api.compat.cohere.errors import CohereErrorReply
from api.compat.cohere.rerank import RerankReply
from tests.acceptance.fakes import fake
from tests.acceptance.nearly import scored
from tests.acceptance.small_models import PATIENT, small

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]

RANKER, SPOILT, LATE = "org/ranker", "org/spoilt", "org/late"
DOCUMENTS = ["Owls hunt at night.", "Chess.", "A rook is a bird.", "Chess.", "Wrens are small."]
QUERY = "Which bird hunts?"
V1, V2 = (cohere.Client, cohere.AsyncClient), (cohere.ClientV2, cohere.AsyncClientV2)


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    models = {
        RANKER: small("cross_encoder", "cross_encoder", tasks={"score": {}}),
        LATE: small(
            "colbert",
            "late_interaction",
            max_length=48,
            tasks={
                "encode": {"token_dims": 32, "outputs": ["multivector"]},
                "score": {"scale": "similarity"},
            },
        ),
        SPOILT: fake(faults=[{"kind": "nan", "when_text": "spoilt"}]) | {"tasks": {"score": {}}},
        "org/plain": fake() | {"tasks": {"encode": {"dims": 8, "prompts": {"query": "query: "}}}},
        "org/short": fake(max_length=8) | {"tasks": {"encode": {"dims": 8}, "score": {}}},
    }
    return start_stack(models=models, **PATIENT)


@pytest.fixture(scope="module")
def http(stack: Any) -> httpx.Client:
    client: httpx.Client = stack.client
    return client


@pytest.fixture(scope="module")
def made(stack: Any) -> Iterator[dict[str, Any]]:
    """How a sync client is made: on connections of ours, since it has no way to close its own."""
    with httpx.Client(timeout=60) as connections:
        yield {"api_key": "any", "base_url": stack.url, "httpx_client": connections}


@pytest.fixture(scope="module")
def call(stack: Any, made: dict[str, Any]) -> Callable[..., list[Any]]:
    """The same call by clients of these classes, sync or async."""
    once: Any = {"max_retries": 0}

    async def awaited(kind: Any, method: str, asked: dict[str, Any]) -> Any:
        async with httpx.AsyncClient(timeout=60) as connections:
            client = kind(api_key="any", base_url=stack.url, httpx_client=connections)
            return await getattr(client, method)(**asked, request_options=once)

    def by(kinds: Sequence[Any], method: str, **asked: Any) -> list[Any]:
        return [
            asyncio.run(awaited(kind, method, asked))
            if kind in (cohere.AsyncClient, cohere.AsyncClientV2)
            else getattr(kind(**made), method)(**asked, request_options=once)
            for kind in kinds
        ]

    return by


@pytest.fixture(scope="module")
def rank(call: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """The same ranking by all four clients: v1 and v2, sync and async."""

    def by_all(**fields: Any) -> list[Any]:
        asked = {"model": RANKER, "query": QUERY, "documents": DOCUMENTS, **fields}
        return call([*V1, *V2], "rerank", **asked)

    return by_all


def native(http: httpx.Client, documents: list[str], model: str = RANKER) -> list[tuple[int, float]]:
    """The ranking of the native API."""
    body = {"verb": "score", "model": model, "query": QUERY, "items": documents}
    found = http.post("/v1/jobs", json=body, headers={"Prefer": "wait=60"}).json()["result"]["scores"]
    return [(one["index"], one["score"]) for one in found]


def places(reply: Any) -> list[tuple[int, float]]:
    return [(one.index, one.relevance_score) for one in reply.results]


def test_every_client_gets_the_native_ranking(rank: Any, http: httpx.Client) -> None:
    expected = native(http, DOCUMENTS)
    assert len({score for _, score in expected}) == 4
    assert all(0 <= score <= 1 for _, score in expected)
    order = [index for index, _ in expected]
    assert order.index(1) + 1 == order.index(3), "equal texts score equally, and keep the order of the request"
    for reply in rank():
        assert places(reply) == scored(expected)
        assert reply.meta.billed_units.input_tokens > 0


@pytest.mark.parametrize("top_n", [0, 3, 5, 99])
def test_the_best_so_many(rank: Any, http: httpx.Client, top_n: int) -> None:
    expected = native(http, DOCUMENTS)[:top_n]
    for reply in rank(top_n=top_n):
        assert places(reply) == scored(expected)


def test_objects_are_ranked_by_their_texts_and_come_back(http: httpx.Client, made: dict[str, Any]) -> None:
    client = cohere.Client(**made)
    documents: Any = [{"text": text, "title": f"T{place}"} for place, text in enumerate(DOCUMENTS)]
    reply = client.rerank(model=RANKER, query=QUERY, documents=documents, return_documents=True)
    assert places(reply) == scored(native(http, DOCUMENTS))
    assert [one.document.text for one in reply.results if one.document] == [DOCUMENTS[i] for i, _ in places(reply)]
    named = client.rerank(model=RANKER, query=QUERY, documents=documents, rank_fields=["title", "text"])
    assert places(named) == scored(native(http, [f"T{place}\n{text}" for place, text in enumerate(DOCUMENTS)]))


def test_a_late_interaction_model_ranks_too(rank: Any, http: httpx.Client) -> None:
    expected = native(http, DOCUMENTS, LATE)
    for reply in rank(model=LATE):
        assert places(reply) == scored(expected)


def test_jinas_and_the_peers_shape(http: httpx.Client) -> None:
    body = {"model": RANKER, "query": QUERY, "documents": DOCUMENTS, "top_n": 2, "return_documents": True}
    reply = http.post("/v1/rerank", json={**body, "truncate": True})
    told = RerankReply.model_validate_json(reply.content)
    assert [(one.index, one.relevance_score) for one in told.results] == scored(native(http, DOCUMENTS)[:2])
    assert reply.json()["results"][0]["document"] == {"text": DOCUMENTS[told.results[0].index]}
    assert told.usage.total_tokens > 0
    peers = http.post("/v1/rerank", json={**body, "options": {"truncate": True}}).json()
    assert (peers["model"], peers["results"]) == (RANKER, reply.json()["results"])
    assert reply.headers["x-roost-job-id"] == told.id


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"top_n": -1}, 422, "top_n"),
        ({"documents": []}, 422, "documents"),
        ({"documents": ["a", " \n"]}, 422, "documents[1]"),
        ({"query": " "}, 422, "query"),
        ({"model": "org/rankr"}, 404, "model"),
        ({"model": "org/plain"}, 422, "model"),
        ({"model": SPOILT, "documents": ["a", "spoilt", "b"]}, 500, "documents[1]"),
    ],
)
def test_errors_have_the_class_of_their_status_and_name_the_field(
    rank: Any, fields: dict[str, Any], status: int, param: str
) -> None:
    kinds = {404: cohere.NotFoundError, 422: cohere.UnprocessableEntityError, 500: cohere.InternalServerError}
    with pytest.raises(kinds[status]) as raised:
        rank(**fields)
    error: ApiError = raised.value
    body = CohereErrorReply.model_validate(error.body)
    assert (error.status_code, body.error.param) == (status, param)
    assert body.message == body.detail


def test_a_long_document_is_cut_or_refused(http: httpx.Client) -> None:
    body = {"model": "org/short", "query": "q", "documents": ["a", "b " * 40]}
    assert len(http.post("/v1/rerank", json=body).json()["results"]) == 2
    refused = http.post("/v1/rerank", json={**body, "truncate": False})
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "documents[1]")
    assert refused.json()["error"]["code"] == "text_too_long"


def test_not_a_number_in_the_body_is_refused_at_the_door(http: httpx.Client) -> None:
    text = '{"model": "org/ranker", "query": "q", "documents": ["a"], "top_n": NaN}'
    refused = http.post("/v1/rerank", content=text, headers={"content-type": "application/json"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "top_n")


@pytest.mark.parametrize("kind", ["search_document", "search_query"])
def test_coheres_clients_embed_the_native_vectors(
    call: Callable[..., list[Any]], http: httpx.Client, kind: str
) -> None:
    options = {"is_query": kind == "search_query"}
    body = {"verb": "encode", "model": "org/plain", "items": DOCUMENTS, "options": options}
    rows = http.post("/v1/jobs", json=body, headers={"Prefer": "wait=60"}).json()["result"]["items"]
    expected = [row["dense"]["values"] for row in rows]
    asked = {"texts": DOCUMENTS, "model": "org/plain", "input_type": kind}
    for first in call(V1, "embed", **asked):
        assert first.embeddings == expected
    for second in call(V2, "embed", **asked, embedding_types=["float", "ubinary"], truncate="NONE"):
        assert second.embeddings.float_ == expected
        assert second.embeddings.ubinary == [
            [sum((value > 0) << (7 - place) for place, value in enumerate(vector))] for vector in expected
        ]


@pytest.mark.parametrize("kinds", [V1, V2], ids=["v1", "v2"])
def test_a_text_that_is_too_long_to_embed_is_cut_or_with_none_refused(
    call: Callable[..., list[Any]], kinds: tuple[Any, ...]
) -> None:
    asked: dict[str, Any] = {"texts": ["a b", "word " * 20], "model": "org/short", "input_type": "search_document"}
    if kinds is V2:
        asked["embedding_types"] = ["float"]
    assert len(call(kinds, "embed", **asked)) == 2
    for kind in kinds:
        with pytest.raises(cohere.UnprocessableEntityError) as refused:
            call([kind], "embed", **asked, truncate="NONE")
        error = refused.value.body["error"]
        assert (error["code"], error["param"]) == ("text_too_long", "texts[1]")


def test_a_chat_by_coheres_client_is_not_found(call: Callable[..., list[Any]]) -> None:
    with pytest.raises(cohere.NotFoundError):
        call([cohere.ClientV2], "chat", model="org/plain", messages=[{"role": "user", "content": "a"}])
