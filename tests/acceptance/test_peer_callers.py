"""Odd texts, odd scores and many callers at once on the peer's routes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.acceptance.fakes import fake, timed, writer
from tests.acceptance.small_models import PATIENT, small

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]
Send = Callable[[str, Any], Any]

CALLERS = 64
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
LITERALS = ["<|endoftext|>", "[CLS] [SEP] [MASK]", "</s>", "<|im_end|>"]
QUERY = {"text": "Which bird hunts?"}
RANKING = [("o", "Owls hunt at night."), ("c", "Chess."), ("o", "A rook is a bird."), ("d", "Chess."), ("w", "Wrens.")]


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    models = {
        "acme/ranker": small("cross_encoder", "cross_encoder", tasks={"score": {}}),
        "acme/spoilt": fake(faults=[{"kind": "nan", "when_text": "SPOILT"}]) | {"tasks": {"score": {}}},
        "acme/finder": timed(1.0, load_seconds=0.5) | {"tasks": {"extract": {"kinds": ["entities"]}}},
        "acme/owl": timed(1.0),
        "acme/echo": writer(echo=True, step_seconds=0.002),
    }
    return start_stack(models=models, batch_items=7, **PATIENT)


@pytest.fixture(scope="module")
def send(stack: Any) -> Send:
    """Post a body, and read the reply as a strict reader does: NaN and Infinity are errors."""

    def sent(path: str, body: Any) -> Any:
        reply: httpx.Response = stack.client.post(path, json=body, timeout=120)
        assert reply.status_code == 200, reply.text
        return json.loads(reply.text, parse_constant=lambda literal: pytest.fail(f"{literal} is no JSON"))

    return sent


def texts(all_: Iterable[str]) -> list[dict[str, str]]:
    return [{"text": text} for text in all_]


@pytest.mark.parametrize("characters", [500, 2000, 2500, 3000, 8000])
def test_a_text_without_spaces_is_encoded_at_any_length(send: Send, characters: int) -> None:
    text = "".join(chr(0x4E00 + n % 2000) for n in range(characters))
    (item,) = send(f"/v1/encode/{MINILM}", {"items": texts([text])})["items"]
    assert (item["dense"]["dims"], item["truncated"]) == (384, True)
    (item,) = send(f"/v1/encode/{MINILM}", {"items": texts(["and the next one"])})["items"]
    assert item["truncated"] is False


def test_literals_of_special_tokens_are_scored_as_text(send: Send) -> None:
    body = {"query": {"text": LITERALS[0]}, "items": texts([*LITERALS, "owl"])}
    told = send("/v1/score/acme/ranker", body)
    assert {one["item_id"] for one in told["scores"]} == {f"item-{n}" for n in range(5)}
    # More than the three tokens around and between the two: they were read as words.
    assert told["usage"]["input_tokens"] > 5 * 4
    ranked = send("/v1/rerank", {"model": "acme/ranker", "query": LITERALS[0], "documents": [*LITERALS, "owl"]})
    assert {one["index"] for one in ranked["results"]} == set(range(5))
    assert [one["relevance_score"] for one in ranked["results"]] == [one["score"] for one in told["scores"]]


def test_a_score_that_is_no_number_is_told_beside_the_others(send: Send) -> None:
    told = send("/v1/score/acme/spoilt", {"query": QUERY, "items": texts(["a", "SPOILT", "b"])})
    assert {one["item_id"] for one in told["scores"]} == {"item-0", "item-2"}
    assert [one["rank"] for one in told["scores"]] == [0, 1]
    (error,) = told["errors"]
    assert (error["index"], error["id"], error["code"]) == (1, "item-1", "INFERENCE_ERROR")


def test_items_of_the_same_id_and_the_same_text_are_ranked_each_for_itself(send: Send) -> None:
    items = [{"id": id_, "text": text} for id_, text in RANKING]
    told = send("/v1/score/acme/ranker", {"query": QUERY, "items": items})["scores"]
    documents = [text for _, text in RANKING]
    ranked = send("/v1/rerank", {"model": "acme/ranker", "query": QUERY["text"], "documents": documents})["results"]
    assert [(one["item_id"], one["score"], one["rank"]) for one in told] == [
        (RANKING[one["index"]][0], one["relevance_score"], place) for place, one in enumerate(ranked)
    ]
    same = [one["rank"] for one in told if one["item_id"] in "cd"]
    assert same[1] == same[0] + 1, "equal texts score equally, in the order of the request"
    assert [one["item_id"] for one in told if one["rank"] in same] == ["c", "d"]


@pytest.mark.parametrize("items", [1, 2, 7])
def test_each_of_many_callers_at_once_finds_its_own_numbers(send: Send, items: int) -> None:
    def found(caller: int) -> list[list[str]]:
        body = {"items": texts(f"said Caller{caller}x{n} again" for n in range(items))}
        return [[one["text"] for one in item["entities"]] for item in send("/v1/extract/acme/finder", body)["items"]]

    with ThreadPoolExecutor(CALLERS) as pool:
        all_ = list(pool.map(found, range(CALLERS)))
    assert all_ == [[[f"Caller{caller}x{n}"] for n in range(items)] for caller in range(CALLERS)]


def test_each_of_many_callers_at_once_is_answered_with_its_own_number(send: Send) -> None:
    def answer(caller: int) -> str:
        body = {"prompt": f"My number is {caller} of many", "max_new_tokens": 12}
        return str(send("/v1/generate/acme/echo", body)["text"])

    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(answer, range(CALLERS)))
    assert answers == [f"My number is {caller} of many" for caller in range(CALLERS)]


@pytest.mark.parametrize("items", [1, 2, 7])
def test_each_of_many_callers_at_once_gets_the_vectors_of_its_own_numbers(send: Send, items: int) -> None:
    def vectors(caller: int) -> list[list[float]]:
        body = {"items": texts(f"number {caller} {n}" for n in range(items))}
        return [item["dense"]["values"] for item in send("/v1/encode/acme/owl", body)["items"]]

    with ThreadPoolExecutor(CALLERS) as pool:
        together = list(pool.map(vectors, range(CALLERS)))
    assert together == [vectors(caller) for caller in range(CALLERS)]
    assert len({tuple(one) for all_ in together for one in all_}) == CALLERS * items
