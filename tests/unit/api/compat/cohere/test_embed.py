"""From Cohere's embed bodies to encode jobs, and back to vectors."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pytest

from api.compat.cohere.embed import CohereEmbedReply, to_job, to_job_v2, to_reply, to_reply_v2
from api.compat.endpoints import Ended
from api.compat.failures import JobFailed
from api.media import dumps
from catalog.errors import RoostError
from tests.unit.api.compat.ends import ID, ended

VECTORS = np.array([[0.5, -0.5, 0.25, 0.0, 1.0, -1.0, 1.0, 1.0, 0.5], [-1.0] * 9], "<f4")


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "org/m", "texts": ["a", "b"], **fields}


def found() -> Ended:
    rows = [{"dense": {"dims": 9, "dtype": "float32", "values": one.tobytes()}, "tokens": 3} for one in VECTORS]
    return ended("encode", rows)


def told(answer: Mapping[str, Any]) -> dict[str, Any]:
    reply: dict[str, Any] = orjson.loads(dumps(answer))
    CohereEmbedReply.model_validate(reply)
    return reply


def test_texts_become_the_items_of_an_encode_job() -> None:
    plain = {"output_types": ["dense"], "output_dtype": "float32", "truncate": True}
    assert to_job(body(input_type="search_document")).raw == {
        "verb": "encode",
        "model": "org/m",
        "items": ["a", "b"],
        "options": plain,
    }
    options = to_job_v2(body(input_type="search_query", truncate="NONE", output_dimension=4)).raw["options"]
    assert options == {**plain, "truncate": False, "is_query": True, "dimensions": 4}


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"texts": []}, "texts", "at least 1 item"),
        ({"texts": ["a", " "]}, "texts[1]", "empty or blank"),
        ({"embedding_types": ["float", "int8"]}, "embedding_types[1]", "need a scale"),
        ({"embedding_types": []}, "embedding_types", "at least 1 item"),
        ({"embedding_types": ["ubinery"]}, "embedding_types[0]", "did you mean 'ubinary'?"),
        ({"truncate": "START"}, "truncate", "cut at its end"),
        ({"input_type": "image"}, "input_type", "must be"),
        ({"images": ["data:…"]}, "images", "texts alone"),
        ({"inputs": []}, "inputs", "texts alone"),
        ({"max_tokens": 3}, "max_tokens", "is not taken"),
        ({"output_dim": 4}, "output_dim", "did you mean 'output_dimension'?"),
    ],
)
def test_what_is_wrong_is_named_as_the_caller_wrote_it(fields: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(RoostError) as raised:
        to_job_v2(body(**fields))
    assert raised.value.param == param
    assert said in raised.value.message


def test_the_first_version_gives_plain_lists_unless_types_are_asked_for() -> None:
    reply = told(to_reply(found(), body()))
    assert (reply["id"], reply["response_type"], reply["texts"]) == (str(ID), "embeddings_floats", ["a", "b"])
    assert np.array_equal(np.array(reply["embeddings"], np.float32), VECTORS)
    typed = told(to_reply(found(), body(embedding_types=["float"])))
    assert (typed["response_type"], typed["embeddings"]) == ("embeddings_by_type", {"float": reply["embeddings"]})
    assert told(to_reply_v2(found(), body()))["embeddings"] == typed["embeddings"]
    assert reply["meta"] == {"api_version": {"version": "1"}, "billed_units": {"input_tokens": 6}}


def test_all_types_are_of_the_same_vectors() -> None:
    types = ["float", "base64", "ubinary", "binary"]
    embeddings = told(to_reply_v2(found(), body(embedding_types=types)))["embeddings"]
    assert list(embeddings) == types
    assert np.array_equal(np.frombuffer(b64decode(embeddings["base64"][0]), "<f4"), VECTORS[0])
    # 1 where a number is more than 0, the first in the highest bit; what is left of the last byte is 0.
    assert embeddings["ubinary"] == [[0b10101011, 0b10000000], [0, 0]]
    assert embeddings["binary"] == [[0b10101011 - 128, 0], [-128, -128]]


def test_a_text_without_a_vector_fails_the_call() -> None:
    failed = {"error": {"code": "not_finite", "message": "No.", "retryable": False}}
    with pytest.raises(JobFailed) as raised:
        to_reply_v2(ended("encode", [failed]), body())
    assert raised.value.param == "texts[0]"
