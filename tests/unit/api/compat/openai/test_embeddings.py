"""From an embeddings body to an encode job, and back to vectors."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pytest
from pydantic import ValidationError

from api.compat.endpoints import Ended
from api.compat.failures import renamed
from api.compat.openai.embeddings import EmbeddingsReply, EmbeddingsRequest, to_job, to_reply
from api.media import dumps
from catalog.errors import InvalidOption, RoostError
from tasks.errors import LimitExceeded
from tasks.request import parse_request
from tests.unit.api.compat.ends import ended

VECTORS = np.array([[0.6, 0.8], [1.0, -0.25]], "<f4")


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "roost/fake", "input": ["a", "b"], **fields}


def found(count: int = 2) -> Ended:
    rows = [
        {"dense": {"dims": 2, "dtype": "float32", "values": VECTORS[i].tobytes()}, "tokens": 3 + i, "truncated": False}
        for i in range(count)
    ]
    return ended("encode", rows)


def told(answer: Mapping[str, Any]) -> dict[str, Any]:
    reply: dict[str, Any] = orjson.loads(dumps(answer))
    EmbeddingsReply.model_validate(reply)
    return reply


def test_texts_become_the_items_of_a_job() -> None:
    raw = to_job(body(dimensions=4, user="me", encoding_format=None, is_query=True)).raw
    request = parse_request(raw, 10)
    assert (request.verb, request.model, request.items) == ("encode", "roost/fake", ["a", "b"])
    assert request.options == {
        "output_types": ["dense"],
        "output_dtype": "float32",
        "truncate": False,
        "dimensions": 4,
        "is_query": True,
    }
    assert to_job(body(input="a", truncate=True)).raw["items"] == ["a"]


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"input": ""}, "input", "empty or blank"),
        ({"input": "\n\t"}, "input", "empty or blank"),
        ({"input": ["a", " "]}, "input[1]", "'input[1]' is empty"),
        ({"input": []}, "input", "at least 1 item"),
        ({"input": [[]]}, "input", "token ids"),
        ({"input": [3, 4]}, "input", "check_embedding_ctx_length=False"),
        ({"input": [[3, 4], [5]]}, "input", "send texts"),
        ({"input": ["a", 3]}, "input[1]", "must be a valid string"),
        ({"input": {"text": "a"}}, "input", "a text or a list of texts"),
        ({"dimensions": 0}, "dimensions", "greater than or equal to 1"),
        ({"dimensions": -1}, "dimensions", "greater than or equal to 1"),
        ({"encoding_format": "flaot"}, "encoding_format", "did you mean 'float'?"),
        ({"dimension": 4}, "dimension", "did you mean 'dimensions'?"),
        ({"model": ""}, "model", "at least 1 character"),
    ],
)
def test_what_is_wrong_is_named_as_the_caller_wrote_it(fields: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(RoostError) as raised:
        to_job(body(**fields))
    assert raised.value.param == param
    assert said in raised.value.message


@pytest.mark.parametrize(
    ("given", "ours", "theirs"),
    [
        (["a", "b"], "items[1]", "input[1]"),
        ("a", "items[0]", "input"),
        ("a", "options.dimensions", "dimensions"),
        ("a", "options.output_types", "model"),
        ("a", "verb", "model"),
    ],
)
def test_errors_of_the_job_name_the_fields_of_the_body(given: Any, ours: str, theirs: str) -> None:
    error = renamed(InvalidOption(f"{ours!r} is wrong.", param=ours), to_job(body(input=given)).names)
    assert (error.param, error.message) == (theirs, f"{theirs!r} is wrong.")
    assert renamed(LimitExceeded(param="items"), to_job(body()).names).param == "input"


def test_numbers_and_base64_are_the_same_little_endian_floats() -> None:
    plain, packed = told(to_reply(found(), body())), told(to_reply(found(), body(encoding_format="base64")))
    for row, (a, b) in enumerate(zip(plain["data"], packed["data"], strict=True)):
        assert np.array_equal(np.array(a["embedding"], np.float32), VECTORS[row])
        assert np.array_equal(np.frombuffer(b64decode(b["embedding"]), "<f4"), VECTORS[row])


def test_a_reply_is_in_the_order_of_the_request_and_counts_tokens() -> None:
    reply = told(to_reply(found(), body()))
    assert (reply["object"], reply["model"]) == ("list", "roost/fake")
    assert [(entry["object"], entry["index"]) for entry in reply["data"]] == [("embedding", 0), ("embedding", 1)]
    assert reply["usage"] == {"prompt_tokens": 7, "total_tokens": 7}


def test_one_failed_text_fails_the_call_by_its_name() -> None:
    end = found()
    end.rows[1] = {"error": {"code": "text_too_long", "message": "Too long.", "retryable": False}}
    with pytest.raises(RoostError) as raised:
        to_reply(end, body())
    assert (raised.value.code, raised.value.param) == ("text_too_long", "input[1]")


def test_one_wrong_text_among_many_ends_the_look_at_them() -> None:
    with pytest.raises(ValidationError) as raised:
        EmbeddingsRequest.model_validate(body(input=["a", *[0] * 100_000]))
    assert raised.value.error_count() == 1
