"""From TEI's /rerank to a score job, and back to a ranking."""

from __future__ import annotations

from typing import Any

import pytest

from api.compat.failures import JobFailed
from api.compat.tei.rerank import RERANK
from catalog.errors import RoostError
from tasks.request import parse_request
from tests.unit.api.compat.ends import ended

ROWS = [{"score": 0.25, "raw_score": -1.1, "tokens": 5}, {"score": 0.75, "raw_score": 1.1, "tokens": 6}]
RANKING = [{"index": 1, "score": 0.75, "rank": 0}, {"index": 0, "score": 0.25, "rank": 1}]


def body(**fields: Any) -> dict[str, Any]:
    return {"query": "q", "texts": ["a", "b"], **fields}


def test_texts_become_the_items_of_a_score() -> None:
    request = parse_request(RERANK.to_job("org/m", body(truncate=True)).raw, 10)
    assert (request.verb, request.model, request.query, request.items) == ("score", "org/m", "q", ["a", "b"])
    assert request.options == {"truncate": True}
    assert RERANK.to_job("org/m", body()).raw["options"] == {"truncate": False}


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"texts": []}, "texts"), ({"texts": ["a", ""]}, "texts[1]"), ({"query": 3}, "query"), ({"top_n": 1}, "top_n")],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RoostError) as raised:
        RERANK.to_job("org/m", body(**fields))
    assert raised.value.param == param


def test_the_ranking_is_whole_and_says_the_place_in_the_request() -> None:
    end = ended("score", ROWS, scores=RANKING)
    assert RERANK.to_reply(end, body()) == [{"index": 1, "score": 0.75}, {"index": 0, "score": 0.25}]
    assert RERANK.to_reply(end, body(raw_scores=True, return_text=True)) == [
        {"index": 1, "score": 1.1, "text": "b"},
        {"index": 0, "score": -1.1, "text": "a"},
    ]


def test_a_score_that_has_no_activation_is_raw_already() -> None:
    end = ended("score", [{"score": 3.5, "tokens": 5}], scores=[{"index": 0, "score": 3.5, "rank": 0}])
    assert RERANK.to_reply(end, {"query": "q", "texts": ["a"], "raw_scores": True}) == [{"index": 0, "score": 3.5}]


def test_a_text_without_a_score_is_not_left_out() -> None:
    failed = {"error": {"code": "not_finite", "message": "No.", "retryable": False}}
    with pytest.raises(JobFailed) as raised:
        RERANK.to_reply(ended("score", [ROWS[0], failed], scores=RANKING[1:]), body())
    assert raised.value.param == "texts[1]"
