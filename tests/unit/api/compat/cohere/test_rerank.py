"""From a rerank body to a score job, and back to a ranking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from api.compat.cohere.rerank import RerankReply, to_job, to_job_v2, to_reply, to_reply_v2
from api.compat.failures import JobFailed, renamed
from api.media import dumps
from catalog.errors import InvalidOption, RoostError
from tasks.request import parse_request
from tests.unit.api.compat.ends import ID, ended

ROWS = [{"score": 0.25, "tokens": 5, "truncated": False}, {"score": 0.75, "tokens": 6, "truncated": False}]
RANKING = [{"index": 1, "score": 0.75, "rank": 0}, {"index": 0, "score": 0.25, "rank": 1}]


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "roost/fake", "query": "birds", "documents": ["owls", "rooks"], **fields}


def told(answer: Mapping[str, Any]) -> dict[str, Any]:
    reply: dict[str, Any] = orjson.loads(dumps(answer))
    RerankReply.model_validate(reply)
    return reply


def test_documents_become_the_items_of_a_score() -> None:
    request = parse_request(to_job(body(top_n=0, truncate=False, options={"instruction": "i"})).raw, 10)
    assert (request.verb, request.model, request.query, request.items) == (
        "score",
        "roost/fake",
        "birds",
        ["owls", "rooks"],
    )
    assert request.options == {"top_n": 0, "truncate": False, "instruction": "i"}
    assert to_job(body()).raw["options"] == {}


def test_objects_are_read_by_their_text_or_by_the_fields_named() -> None:
    documents = [{"text": "owls", "title": "A"}, {"text": "rooks", "title": "B", "year": 3}, "wrens"]
    assert to_job(body(documents=documents)).raw["items"] == ["owls", "rooks", "wrens"]
    named = to_job_v2(body(documents=documents, rank_fields=["title", "text", "none"]))
    assert named.raw["items"] == ["A\nowls", "B\nrooks", "wrens"]


@pytest.mark.parametrize(("theirs", "ours"), [(0, 9), (99, 9), (100, 8), (500, 4), (999, 0)])
def test_the_most_urgent_of_cohere_is_0_and_ours_9(theirs: int, ours: int) -> None:
    assert parse_request(to_job_v2(body(priority=theirs)).raw, 10).priority == ours


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"documents": []}, "documents", "at least 1 item"),
        ({"documents": ["a", " "]}, "documents[1]", "'documents[1]' is empty or blank"),
        ({"documents": ["a", {"text": "\n"}]}, "documents[1]", "is empty or blank"),
        ({"documents": [{"title": "a"}]}, "documents[0]", "has no 'text'; name others in 'rank_fields'"),
        ({"documents": [{"a": "b"}], "rank_fields": ["x", "y"]}, "documents[0]", "has no 'x' and no 'y'."),
        ({"documents": [{"text": 3}]}, "documents[0].text", "must be a text"),
        ({"documents": ["a", 3]}, "documents[1]", "a text or an object"),
        ({"documents": "a"}, "documents", "must be a valid list"),
        ({"top_n": -1}, "top_n", "greater than or equal to 0"),
        ({"top_n": 1, "options": {"top_n": 2}}, "top_n", "given twice"),
        ({"rank_fields": []}, "rank_fields", "at least 1 item"),
        ({"max_chunks_per_doc": 3}, "max_chunks_per_doc", "is not taken: a document is one text here"),
        ({"query": 3}, "query", "must be a valid string"),
        ({"model": ""}, "model", "at least 1 character"),
        ({"topn": 3}, "topn", "did you mean 'top_n'?"),
    ],
)
def test_what_is_wrong_is_named_as_the_caller_wrote_it(fields: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(RoostError) as raised:
        to_job(body(**fields))
    assert raised.value.param == param
    assert said in raised.value.message


@pytest.mark.parametrize("field", ["max_tokens_per_doc", "relevant_spans", "max_chunks_per_doc", "priority"])
def test_what_cohere_has_and_nothing_here_does_is_refused(field: str) -> None:
    with pytest.raises(RoostError, match=field):
        to_job_v2(body(**{field: 1000}))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("items[1]", "documents[1]"),
        ("verb", "model"),
        ("options.top_n", "top_n"),
        ("options.instruction", "options.instruction"),
        ("query", "query"),
    ],
)
def test_errors_of_the_job_name_the_fields_of_the_body(ours: str, theirs: str) -> None:
    names = to_job(body(top_n=1, options={"instruction": "i"})).names
    assert renamed(InvalidOption(f"{ours!r} is wrong.", param=ours), names).param == theirs


def test_a_ranking_says_the_place_in_the_request_and_what_was_read() -> None:
    first, second = (told(write(ended("score", ROWS, scores=RANKING), body())) for write in (to_reply, to_reply_v2))
    assert first["results"] == [{"index": 1, "relevance_score": 0.75}, {"index": 0, "relevance_score": 0.25}]
    assert (first["id"], first["model"]) == (str(ID), "roost/fake")
    assert first["usage"] == {"prompt_tokens": 11, "total_tokens": 11}
    assert first["meta"] == {"api_version": {"version": "1"}, "billed_units": {"input_tokens": 11}}
    assert second["meta"]["api_version"] == {"version": "2"}
    assert second["results"] == first["results"]


def test_no_place_is_a_ranking_too() -> None:
    assert told(to_reply(ended("score", ROWS, scores=[]), body(top_n=0)))["results"] == []


def test_documents_come_back_as_they_were_sent() -> None:
    documents = ["owls", {"title": "rooks", "year": 3}]
    sent = body(documents=documents, rank_fields=["title"], return_documents=True)
    reply = told(to_reply(ended("score", ROWS, scores=RANKING), sent))
    assert [one["document"] for one in reply["results"]] == [
        {"text": "rooks", "title": "rooks", "year": 3},
        {"text": "owls"},
    ]
    assert "document" not in told(to_reply(ended("score", ROWS, scores=RANKING), body()))["results"][0]


def test_a_document_without_a_score_is_not_left_out() -> None:
    failed = {"error": {"code": "not_finite", "message": "No finite score.", "retryable": False}}
    with pytest.raises(JobFailed) as raised:
        to_reply(ended("score", [ROWS[0], failed], scores=RANKING[1:]), body())
    assert (raised.value.code, raised.value.param, raised.value.job_id) == ("not_finite", "documents[1]", str(ID))
