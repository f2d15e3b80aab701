"""From TEI's bodies to encode jobs, and back to lists of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pytest

from api.compat.failures import JobFailed, renamed
from api.compat.tei.embed import EMBED, EMBED_ALL, EMBED_SPARSE, SIMILARITY
from api.compat.tei.work import Work
from api.media import dumps
from catalog.errors import InvalidOption, RoostError
from tasks.request import parse_request
from tests.unit.api.compat.ends import ended

FAILED = {"error": {"code": "text_too_long", "message": "Long.", "retryable": False}}


def dense(*values: float) -> dict[str, Any]:
    data = np.array(values, "<f4").tobytes()
    return {"dense": {"dims": len(values), "dtype": "float32", "values": data}, "tokens": 3, "truncated": False}


def told(work: Work, rows: list[dict[str, Any]], body: Mapping[str, Any]) -> Any:
    return orjson.loads(dumps(work.to_reply(ended("encode", rows), body)))


@pytest.mark.parametrize(
    ("work", "output"), [(EMBED, "dense"), (EMBED_SPARSE, "sparse"), (EMBED_ALL, "multivector")], ids=["d", "s", "m"]
)
def test_texts_become_the_items_of_an_encode_job(work: Work, output: str) -> None:
    request = parse_request(work.to_job("org/m", {"inputs": ["a", "b"], "prompt_name": "query"}).raw, 10)
    assert (request.verb, request.model, request.items) == ("encode", "org/m", ["a", "b"])
    assert request.options == {
        "output_types": [output],
        "output_dtype": "float32",
        "truncate": False,
        "prompt": "query",
    }
    cut = work.to_job("org/m", {"inputs": "a", "truncate": True, "truncation_direction": "Right"}).raw
    assert (cut["items"], cut["options"]["truncate"]) == (["a"], True)


def test_dense_vectors_take_two_options_more() -> None:
    options = EMBED.to_job("org/m", {"inputs": "a", "normalize": False, "dimensions": 4}).raw["options"]
    assert (options["normalize"], options["dimensions"]) == (False, 4)


@pytest.mark.parametrize(
    ("work", "body", "param", "said"),
    [
        (EMBED, {"inputs": ""}, "inputs", "empty or blank"),
        (EMBED, {"inputs": ["a", " "]}, "inputs[1]", "empty or blank"),
        (EMBED, {"inputs": []}, "inputs", "at least 1 item"),
        (EMBED, {"inputs": [1, 2]}, "inputs", "token ids"),
        (EMBED, {"input": "a"}, "input", "did you mean 'inputs'?"),
        (EMBED, {"inputs": "a", "truncation_direction": "LEFT"}, "truncation_direction", "'right' alone"),
        (EMBED, {"inputs": "a", "truncation_direction": "up"}, "truncation_direction", "must be 'right'"),
        (EMBED_SPARSE, {"inputs": "a", "normalize": True}, "normalize", "Unknown field"),
        (SIMILARITY, {"inputs": {"source_sentence": "a", "sentences": []}}, "inputs.sentences", "at least 1 item"),
        (SIMILARITY, {"inputs": {"source_sentence": " ", "sentences": ["b"]}}, "inputs.source_sentence", "blank"),
        (SIMILARITY, {"inputs": {"source_sentence": "a", "sentences": ["b", ""]}}, "inputs.sentences[1]", "blank"),
    ],
)
def test_what_is_wrong_is_named_as_the_caller_wrote_it(work: Work, body: Any, param: str, said: str) -> None:
    with pytest.raises(RoostError) as raised:
        work.to_job("org/m", body)
    assert raised.value.param == param
    assert said in raised.value.message


def test_errors_of_the_job_name_the_fields_of_the_body() -> None:
    names = EMBED.to_job("org/m", {"inputs": ["a", "b"]}).names
    for ours, theirs in {"items[1]": "inputs[1]", "options.dimensions": "dimensions", "verb": "model"}.items():
        assert renamed(InvalidOption(f"{ours!r} is wrong.", param=ours), names).param == theirs


def test_vectors_come_back_in_the_order_of_the_request() -> None:
    assert told(EMBED, [dense(1.0, -0.25), dense(0.5, 0.75)], {"inputs": ["a", "b"]}) == [[1.0, -0.25], [0.5, 0.75]]
    assert told(EMBED, [dense(1.0)], {"inputs": "a"}) == [[1.0]]


def test_sparse_vectors_are_pairs_of_index_and_value() -> None:
    values = np.array([0.1, 2.5], "<f4").tobytes()
    row = {"sparse": {"dims": 9, "dtype": "float32", "indices": np.array([3, 7], "<i4").tobytes(), "values": values}}
    assert told(EMBED_SPARSE, [row], {"inputs": "a"}) == [[{"index": 3, "value": 0.1}, {"index": 7, "value": 2.5}]]


def test_each_token_has_its_vector() -> None:
    values = np.arange(6, dtype="<f4").tobytes()
    row = {"multivector": {"token_dims": 2, "num_tokens": 3, "dtype": "float32", "values": values}}
    assert told(EMBED_ALL, [row], {"inputs": "a"}) == [[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]]


def test_similarity_is_that_of_the_first_with_the_others() -> None:
    body = {"inputs": {"source_sentence": "a", "sentences": ["b", "c"]}, "parameters": {}}
    raw = SIMILARITY.to_job("org/m", body).raw
    assert (raw["items"], raw["options"]["output_types"]) == (["a", "b", "c"], ["dense"])
    assert told(SIMILARITY, [dense(1.0, 0.0), dense(0.5, 0.5), dense(0.0, 1.0)], body) == [0.5, 0.0]
    with pytest.raises(JobFailed) as raised:
        told(SIMILARITY, [dense(1.0), dense(1.0), FAILED], body)
    assert raised.value.param == "inputs.sentences[1]"


@pytest.mark.parametrize("work", [EMBED, EMBED_SPARSE, EMBED_ALL], ids=["d", "s", "m"])
def test_a_text_without_a_vector_fails_the_call(work: Work) -> None:
    with pytest.raises(JobFailed) as raised:
        told(work, [FAILED], {"inputs": ["a"]})
    assert (raised.value.code, raised.value.param) == ("text_too_long", "inputs[0]")
