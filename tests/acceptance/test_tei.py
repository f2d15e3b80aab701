"""TEI's routes by Hugging Face's own client, sync and async, and over plain HTTP where it has no call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from api.compat.tei.info import TeiInfo
from tests.acceptance.fakes import fake
from tests.acceptance.nearly import scored
from tests.acceptance.small_models import PATIENT, bge_m3, small

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
M3 = "org/m3"
TEXTS = ["Owls hunt at night.", "A rook is a bird, and a piece of chess.", "Wrens are small."]


def specs() -> dict[str, dict[str, Any]]:
    return {
        "org/ranker": small("cross_encoder", "cross_encoder", tasks={"score": {}}),
        "org/moods": small(
            "classifier",
            "sequence_classifier",
            tasks={"extract": {"kinds": ["classifications"], "labels": ["calm", "angry", "attack"]}},
        ),
        "org/nli": small("nli", "zero_shot_nli", tasks={"extract": {"kinds": ["classifications"]}}),
        M3: bge_m3(),
        "org/both": fake() | {"tasks": {"encode": {"dims": 8, "prompts": {"query": "query: "}}, "score": {}}},
        "org/short": fake(max_length=8),
        "org/spoilt": fake(faults=[{"kind": "nan", "when_text": "spoilt"}]) | {"tasks": {"score": {}}},
    }


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(models=specs(), tei_models="org/both, org/moods", **PATIENT)


@pytest.fixture(scope="module")
def http(stack: Any) -> httpx.Client:
    client: httpx.Client = stack.client
    return client


@pytest.fixture(scope="module")
def sync_client() -> Iterator[type[InferenceClient]]:
    """The sync client. Tests ask no hub, and the client takes any address for one: only ours is asked here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        yield InferenceClient
    huggingface_hub.close_session()


@pytest.fixture(scope="module")
def both(stack: Any, sync_client: type[InferenceClient]) -> Callable[..., list[Any]]:
    """The same call by both clients, pointed at a path of the service."""

    def call(path: str, call: Callable[[Any], Any], **options: Any) -> list[Any]:
        async def awaited() -> Any:
            async with AsyncInferenceClient(model=stack.url + path, timeout=60, **options) as client:
                return await call(client)

        return [call(sync_client(model=stack.url + path, timeout=60, **options)), asyncio.run(awaited())]

    return call


def native(http: httpx.Client, verb: str, model: str, items: list[str], **more: Any) -> Any:
    body = {"verb": verb, "model": model, "items": items, **more}
    return http.post("/v1/jobs", json=body, headers={"Prefer": "wait=60"}).json()["result"]


@pytest.mark.parametrize("path", [f"/tei/{MINILM}", f"/tei/{MINILM}/embed", f"/tei/{MINILM.replace('/', '__')}/embed"])
@pytest.mark.parametrize("given", [TEXTS[0], TEXTS], ids=["one", "three"])
def test_features_are_the_native_vectors(both: Any, http: httpx.Client, path: str, given: Any) -> None:
    items = [given] if isinstance(given, str) else given
    expected = np.array([row["dense"]["values"] for row in native(http, "encode", MINILM, items)["items"]], np.float32)
    for found in both(path, lambda c: c.feature_extraction(given, normalize=True, truncate=True)):
        assert found.shape == expected.shape
        assert np.allclose(found, expected, atol=1e-5)


def test_a_url_alone_is_the_first_model_that_can_do_it(both: Any, http: httpx.Client) -> None:
    expected = native(http, "encode", "org/both", [TEXTS[0]], options={"prompt": "query"})["items"][0]["dense"]
    for path in ("", "/embed"):
        for found in both(path, lambda c: c.feature_extraction(TEXTS[0], prompt_name="query")):
            assert np.array_equal(found[0], np.array(expected["values"], np.float32))


@pytest.mark.parametrize("path", [f"/tei/{MINILM}", f"/tei/{MINILM}/similarity"])
def test_similarity_is_the_cosine_and_equal_for_equal_texts(both: Any, http: httpx.Client, path: str) -> None:
    rows = native(http, "encode", MINILM, TEXTS)["items"]
    source, *others = (np.array(row["dense"]["values"]) for row in rows)
    for found in both(path, lambda c: c.sentence_similarity(TEXTS[0], other_sentences=[*TEXTS[1:], TEXTS[1]])):
        assert np.allclose(found[:2], [source @ other for other in others], atol=1e-5)
        assert found[2] == found[0]


@pytest.mark.parametrize("path", ["/tei/org/moods", "/tei/org/moods/predict", "/predict"])
def test_classes_are_the_native_ones_best_first(both: Any, http: httpx.Client, path: str) -> None:
    labels = native(http, "extract", "org/moods", TEXTS[:1])["items"][0]["classifications"]
    expected = [(one["label"], one["score"]) for one in sorted(labels, key=lambda one: -one["score"])]
    assert len(expected) == 3
    for found in both(path, lambda c: c.text_classification(TEXTS[0])):
        assert [(one.label, one.score) for one in found] == scored(expected)
    for found in both(path, lambda c: c.text_classification(TEXTS[0], top_k=1)):
        assert [(one.label, one.score) for one in found] == scored(expected[:1])


@pytest.mark.parametrize("multi", [False, True])
def test_labels_of_the_callers_own_are_scored(both: Any, http: httpx.Client, multi: bool) -> None:
    own = ["nature", "chess"]
    options = {"labels": own, "multi_label": multi}
    labels = native(http, "extract", "org/nli", TEXTS[:1], options=options)["items"][0]["classifications"]
    expected = sorted(((one["label"], one["score"]) for one in labels), key=lambda one: -one[1])
    for path in ("/tei/org/nli", "/tei/org/nli/predict"):
        for found in both(path, lambda c: c.zero_shot_classification(TEXTS[0], own, multi_label=multi)):
            assert [(one.label, one.score) for one in found] == scored(expected)
            assert len(found) == 2


def test_predictions_have_the_shape_of_their_inputs(http: httpx.Client) -> None:
    alone = http.post("/predict", json={"inputs": TEXTS[0]}).json()
    assert {one["label"] for one in alone} == {"calm", "angry", "attack"}
    many = http.post("/predict", json={"inputs": [[TEXTS[0]], [TEXTS[1]]], "raw_scores": False}).json()
    assert [(one["label"], one["score"]) for one in many[0]] == scored((one["label"], one["score"]) for one in alone)
    assert len(many) == 2
    pair = http.post("/predict", json={"inputs": [TEXTS[0], TEXTS[1]]})
    assert (pair.status_code, pair.json()["param"]) == (422, "inputs")
    assert "/rerank" in pair.json()["error"]


@pytest.mark.parametrize("raw", [False, True])
def test_a_ranking_is_the_native_one(http: httpx.Client, raw: bool) -> None:
    texts = [*TEXTS, TEXTS[0], "Chess."]
    job = native(http, "score", "org/ranker", texts, query="birds")
    field = "raw_score" if raw else "score"
    expected = [
        {
            "index": one["index"],
            "score": pytest.approx(job["items"][one["index"]][field], abs=1e-5),
            "text": texts[one["index"]],
        }
        for one in job["scores"]
    ]
    body = {"query": "birds", "texts": texts, "raw_scores": raw, "return_text": True, "truncate": True}
    for path in ("/tei/org/ranker/rerank", "/tei/org/ranker"):
        found = http.post(path, json=body).json()
        assert found == expected
    places = [one["index"] for one in found]
    assert places.index(0) + 1 == places.index(3), "equal texts are neighbours, in the order of the request"
    assert all("text" not in one for one in http.post("/rerank", json={"query": "q", "texts": texts}).json())


def test_sparse_vectors_and_those_of_tokens_are_the_native_ones(http: httpx.Client) -> None:
    row = native(http, "encode", M3, TEXTS[:1], options={"output_types": ["sparse", "multivector"]})["items"][0]
    sparse = http.post(f"/tei/{M3}/embed_sparse", json={"inputs": TEXTS[0]}).json()
    assert [(one["index"], one["value"]) for one in sparse[0]] == scored(
        zip(row["sparse"]["indices"], row["sparse"]["values"], strict=True)
    )
    assert len(sparse[0]) > 3
    tokens = http.post(f"/tei/{M3}/embed_all", json={"inputs": [TEXTS[0]]}).json()
    assert np.allclose(tokens[0], row["multivector"]["values"], atol=1e-5)
    assert len(tokens[0]) == row["multivector"]["num_tokens"]


@pytest.mark.parametrize(
    ("path", "kind", "model"),
    [
        (f"/tei/{MINILM}", "embedding", MINILM),
        ("/tei/org/ranker", "reranker", "org/ranker"),
        ("/tei/org/moods", "classifier", "org/moods"),
        ("", "embedding", "org/both"),
    ],
)
def test_what_a_model_is_and_whether_it_can_be_asked(both: Any, path: str, kind: str, model: str) -> None:
    for told in both(path, lambda c: c.get_endpoint_info(), provider="hf-inference"):
        TeiInfo.model_validate(told)
        assert (told["model_id"], list(told["model_type"])) == (model, [kind])
    assert both(path, lambda c: c.health_check(), provider="hf-inference") == [True, True]
    if kind == "classifier":
        assert told["model_type"][kind]["id2label"] == {"0": "calm", "1": "angry", "2": "attack"}


def test_a_model_that_there_is_not_is_not_healthy(http: httpx.Client) -> None:
    assert http.get("/tei/org/none/health").status_code == 404
    assert http.get("/tei/org/none/info").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "param"),
    [
        ("/tei/org/short/embed", {"inputs": ["a", "b " * 20]}, 413, "Validation", "inputs[1]"),
        ("/tei/org/both/embed", {"inputs": ["a", " "]}, 400, "Empty", "inputs[1]"),
        ("/tei/org/both/embed", {"inputs": []}, 422, "Validation", "inputs"),
        ("/tei/org/both/embed", {"inputs": "a", "prompt_name": "qury"}, 422, "Validation", "prompt_name"),
        (
            "/tei/org/both/embed",
            {"inputs": "a", "truncation_direction": "Left"},
            422,
            "Validation",
            "truncation_direction",
        ),
        ("/tei/org/both/embed", {"inputs": "a", "normalise": True}, 422, "Validation", "normalise"),
        ("/tei/org/moods/embed", {"inputs": "a"}, 424, "Backend", "model"),
        ("/tei/org/botth/embed", {"inputs": "a"}, 404, "Validation", "model"),
        ("/embed_sparse", {"inputs": "a"}, 422, "Validation", "model"),
        ("/tei/org/spoilt/rerank", {"query": "q", "texts": ["a", "spoilt", "b"]}, 424, "Backend", "texts[1]"),
        ("/tei/org/ranker/rerank", {"query": " ", "texts": ["a"]}, 400, "Empty", "query"),
        ("/tei/org/ranker/rerank", {"query": "q", "texts": []}, 422, "Validation", "texts"),
        ("/predict", {"inputs": "a", "raw_scores": True}, 422, "Validation", "raw_scores"),
        ("/predict", {"inputs": "a", "parameters": {"candidate_labels": ["b"]}}, 422, "Validation", None),
    ],
)
def test_errors_are_in_teis_envelope_and_name_the_field(
    http: httpx.Client, path: str, body: Any, status: int, kind: str, param: str | None
) -> None:
    reply = http.post(path, json=body)
    told = reply.json()
    assert (reply.status_code, told["error_type"]) == (status, kind), told
    assert param is None or told["param"] == param


@pytest.mark.parametrize("path", ["/tokenize", "/decode", "/tei/org/both/tokenize", "/tei/org/both/decode"])
def test_routes_of_teis_that_are_not_here_are_not_found(http: httpx.Client, path: str) -> None:
    assert http.post(path, json={"inputs": "a", "ids": [1]}).status_code == 404


@pytest.mark.parametrize(
    ("path", "said"), [("/tei/org/botth", "org/both"), ("/embed_sparse", "ROOST_TEI_MODELS")], ids=["unknown", "none"]
)
def test_huggingfaces_client_shows_the_message(both: Any, path: str, said: str) -> None:
    with pytest.raises(HfHubHTTPError, match=said):
        both(path, lambda c: c.feature_extraction("a"))


def test_a_call_is_a_job_like_any_other(http: httpx.Client) -> None:
    reply = http.post("/embed", json={"inputs": TEXTS})
    job = http.get(f"/v1/jobs/{reply.headers['x-roost-job-id']}").json()
    assert (job["status"], job["verb"], job["model"], job["items"]) == ("succeeded", "encode", "org/both", 3)
