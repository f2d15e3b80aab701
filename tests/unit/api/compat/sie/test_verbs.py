"""Bodies of the peer's client as native requests, and ends of jobs as its replies."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
import pytest

from api.compat.endpoints import Asked
from api.compat.failures import renamed
from api.compat.sie import encode, extract, generate, replies, score
from api.compat.sie.arrays import array
from api.media import Media
from api.values import unpack
from catalog.errors import InvalidOption
from tasks.errors import InvalidRequest, LimitExceeded
from tasks.request import parse_request
from tests.unit.api.compat.ends import ended
from tests.unit.api.compat.sie import golden

ToJob = Callable[[str, Mapping[str, Any]], Asked]
BLANK = {"error": {"code": "empty_text", "message": "The text is blank.", "retryable": False, "param": "items[1]"}}
LONG = {"id": "b", "error": {"code": "text_too_long", "message": "It is too long.", "retryable": False}}


def asked(to_job: ToJob, model: str, body: bytes | dict[str, Any]) -> dict[str, Any]:
    """The native request, which the native door takes as it is."""
    raw = to_job(model, body if isinstance(body, dict) else read(body)).raw
    parse_request(raw, 10)
    return dict(raw)


def read(body: bytes) -> dict[str, Any]:
    found: Any = orjson.loads(body) if body.startswith(b"{") else unpack(body)
    assert isinstance(found, dict)
    return found


def test_the_clients_encode_is_a_native_encode() -> None:
    assert asked(encode.to_job, "BAAI/bge-m3", golden.ENCODE) == {
        "verb": "encode", "model": "BAAI/bge-m3", "items": [{"text": "Hello"}], "options": {},
    }  # fmt: skip
    assert asked(encode.to_job, "BAAI/bge-m3:dense", golden.ENCODE_PARAMS) == {
        "verb": "encode",
        "model": "BAAI/bge-m3:dense",
        "items": [{"id": "a", "text": "x"}, {"id": "b", "text": "y"}],
        "options": {
            "output_types": ["dense", "sparse", "multivector"],
            "output_dtype": "int8",
            "instruction": "inst",
            "normalize": True,
            "is_query": True,
        },
    }


def test_precomputed_vectors_are_unpacked_and_metadata_is_left_out() -> None:
    (item,) = asked(encode.to_job, "m", golden.ENCODE_VECTORS)["items"]
    assert item == {
        "multivector": {
            "num_tokens": 2, "token_dims": 2, "dtype": "float32", "values": np.arange(1, 5, dtype="<f4").tobytes(),
        }
    }  # fmt: skip


def test_an_image_comes_as_bytes() -> None:
    (item,) = asked(encode.to_job, "m", golden.ENCODE_IMAGE)["items"]
    assert item["images"][0]["format"] == "png"
    assert item["images"][0]["data"].startswith(b"\x89PNG")


def test_bits_are_unsigned_in_both_of_the_peers_types() -> None:
    body = {"items": [{"text": "a"}], "params": {"output_dtype": "binary"}}
    assert asked(encode.to_job, "m", body)["options"] == {"output_dtype": "ubinary"}
    row: dict[str, Any] = {"dense": {"dims": 8, "dtype": "ubinary", "values": b"\x81"}, "tokens": 3, "truncated": False}
    made = encode.to_reply(ended("encode", [row]), body, Media.MSGPACK, drops=True)
    assert made["items"][0]["dense"] == {"dims": 8, "dtype": "binary", "values": array(b"\x81", "|u1", 1)}


def vector_rows() -> list[dict[str, Any]]:
    dense = {"dims": 2, "dtype": "float32", "values": np.array([1, 2], "<f4").tobytes()}
    return [{"id": "a", "dense": dense, "tokens": 3, "truncated": False}, dict(LONG)]


def test_the_peers_client_gets_no_item_for_one_that_failed() -> None:
    made = encode.to_reply(ended("encode", vector_rows(), usage={"tokens": 3}), {}, Media.MSGPACK, drops=True)
    assert [item["id"] for item in made["items"]] == ["a"]
    assert made["items"][0]["dense"]["values"] == array(np.array([1, 2], "<f4").tobytes(), "<f4", 2)
    assert made["errors"] == [{"index": 1, "id": "b", "code": "INPUT_TOO_LONG", "message": "It is too long."}]
    assert made["usage"] == {"input_tokens": 3}


def test_others_get_an_item_with_its_error() -> None:
    made = encode.to_reply(ended("encode", vector_rows()), {}, Media.JSON, drops=False)
    assert made["items"][1] == {"id": "b", "error": {"code": "INPUT_TOO_LONG", "message": "It is too long."}}
    assert made["items"][0]["dense"]["values"].tolist() == [1.0, 2.0]
    assert "errors" not in made


def test_the_clients_score_is_a_native_score() -> None:
    assert asked(score.to_job, "BAAI/bge-reranker-v2-m3", golden.SCORE) == {
        "verb": "score",
        "model": "BAAI/bge-reranker-v2-m3",
        "query": {"id": "q", "text": "q?"},
        "items": [{"id": "1", "text": "a"}, {"text": "b"}],
        "options": {"instruction": "i"},
    }


def test_more_items_than_the_peer_scores_are_refused() -> None:
    with pytest.raises(LimitExceeded) as caught:
        score.to_job("m", {"query": {"text": "q"}, "items": [{"text": "a"}] * 1001})
    assert caught.value.param == "items"


def test_a_ranking_names_each_item_and_leaves_out_what_failed() -> None:
    rows: list[dict[str, Any]] = [{"score": 0.25}, dict(BLANK), {"id": "c", "score": 0.5}]
    scores = [{"index": 2, "score": 0.5, "rank": 0}, {"index": 0, "score": 0.25, "rank": 1}]
    made = score.to_reply(ended("score", rows, scores=scores, usage={"tokens": 9}), {"query": {"id": "q", "text": "?"}})
    assert made["query_id"] == "q"
    assert made["scores"] == [
        {"item_id": "c", "score": 0.5, "rank": 0},
        {"item_id": "item-0", "score": 0.25, "rank": 1},
    ]
    assert made["errors"] == [
        {"index": 1, "id": "item-1", "code": "INVALID_INPUT", "message": "The text is blank."}
    ]  # fmt: skip
    assert made["usage"] == {"input_tokens": 9, "pairs": 3}


def test_the_clients_extract_is_a_native_extract() -> None:
    assert asked(extract.to_job, "docling", golden.EXTRACT_DOCUMENT) == {
        "verb": "extract",
        "model": "docling",
        "items": [{"id": "d", "document": {"data": b"%PDF-", "format": "pdf"}}],
        "options": {},
    }
    assert asked(extract.to_job, "fastino/gliner2-large-v1", golden.EXTRACT_SCHEMA) == {
        "verb": "extract",
        "model": "fastino/gliner2-large-v1",
        "items": [{"text": "Apple"}],
        "labels": ["org"],
        "output_schema": {"type": "object"},
        "options": {"instruction": "x"},
    }
    (item,) = asked(extract.to_job, "openai/whisper-large-v3-turbo", golden.EXTRACT_AUDIO)["items"]
    assert item == {"audio": {"data": b"RIFF", "format": "wav", "sample_rate": 16000}}


def test_a_number_of_numpys_is_an_option() -> None:
    assert asked(extract.to_job, "m", golden.EXTRACT_NUMBER)["options"] == {"threshold": 0.5}


ENTITY = {"text": "Ada", "label": "person", "score": 0.9, "start": 0, "end": 3}
CLASS = {"label": "letter", "score": 0.9}


@pytest.mark.parametrize(
    ("row", "data"),
    [
        ({"entities": [ENTITY]}, [ENTITY]),
        ({"objects": [{"label": "cat", "score": 0.5, "bbox": [1, 2, 3, 4]}]},
         [{"label": "cat", "score": 0.5, "bbox": [1, 2, 3, 4]}]),
        ({"classifications": [CLASS], "data": {"windows": 2}}, [CLASS]),
        ({"entities": [ENTITY], "data": {"who": "Ada"}}, {"who": "Ada"}),
        ({"data": {"text": "t", "markdown": "# t"}}, {"text": "t", "markdown": "# t"}),
        ({"entities": []}, []),
    ],
)  # fmt: skip
def test_what_was_found_is_in_data_too(row: dict[str, Any], data: Any) -> None:
    (item,) = extract.to_reply(ended("extract", [{"tokens": 1, "truncated": False, **row}]), {})["items"]
    assert item["data"] == data
    for name in ("entities", "relations", "classifications", "objects"):
        assert item[name] == row.get(name, [])


def test_an_extraction_that_failed_keeps_its_place() -> None:
    made = extract.to_reply(ended("extract", [{"id": "a", "entities": [ENTITY]}, dict(LONG)]), {})
    assert made["items"][1]["error"] == {"code": "INPUT_TOO_LONG", "message": "It is too long."}
    assert made["items"][1]["entities"] == []


def test_pages_and_sound_are_counted_in_their_own_units() -> None:
    assert replies.usage(ended("extract", [], usage={"tokens": 2, "pages": 2}).job) == {"pages": 2}
    assert replies.usage(ended("extract", [], usage={"tokens": 9, "audio_ms": 70}).job) == {"audio_ms": 70}


def test_the_clients_generate_is_a_native_generate() -> None:
    assert asked(generate.to_job, "Qwen__Qwen3.5-4B:no-spec", golden.GENERATE) == {
        "verb": "generate",
        "model": "Qwen/Qwen3.5-4B:no-spec",
        "items": [{"text": "hi", "images": [{"data": "iVBORw0KGgo=", "format": "png"}]}],
        "options": {
            "temperature": 0, "top_p": 1, "stop": ["x"], "grammar": {"json_schema": {"type": "object"}}, "seed": 1,
            "max_tokens": 10,
        },
    }  # fmt: skip
    assert b64decode("iVBORw0KGgo=").startswith(b"\x89PNG")


def test_a_text_alone_goes_in_without_the_chat_template() -> None:
    found = asked(generate.to_job, "Qwen__Qwen3.5-4B", golden.STREAM)
    assert found["items"] == [{"text": "hi"}]
    assert found["options"] == {"max_tokens": 10, "logprobs": True, "top_logprobs": 2, "raw": True}


def test_the_template_can_be_asked_for() -> None:
    body = {"prompt": "hi", "max_new_tokens": 3, "options": {"raw": False}}
    assert asked(generate.to_job, "m", body)["options"]["raw"] is False


def test_an_adapter_is_named_as_the_client_names_it_also_in_errors() -> None:
    made = generate.to_job("m", {"prompt": "hi", "max_new_tokens": 3, "lora_adapter": "sql"})
    assert made.raw["options"]["lora"] == "sql"
    assert renamed(InvalidOption("", param="options.lora"), made.names).param == "lora_adapter"


def test_a_field_that_generate_does_not_have_is_told_with_the_nearest() -> None:
    with pytest.raises(generate.UnsupportedField, match="did you mean 'temperature'") as caught:
        generate.to_job("m", {"prompt": "hi", "max_new_tokens": 3, "temperatur": 1})
    assert caught.value.param == "temperatur"


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "hi"},
        {"max_new_tokens": 3},
        {"prompt": 3, "max_new_tokens": 3},
        {"prompt": "hi", "max_new_tokens": 0},
        {"prompt": "hi", "max_new_tokens": "3"},
        {"prompt": "hi", "max_new_tokens": []},
        {"prompt": "hi", "max_new_tokens": None},
    ],
)
def test_a_prompt_and_a_bound_are_needed(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        generate.to_job("m", body)


def test_a_prompt_has_a_limit_in_bytes() -> None:
    with pytest.raises(LimitExceeded) as caught:
        generate.to_job("m", {"prompt": "é" * (2 * 2**20 + 1), "max_new_tokens": 3})
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('{"n": 1}', {"n": 1}),
        (" [1, 2]\n", [1, 2]),
        ("Once upon", "Once upon"),
        ('{"n": ', '{"n": '),
        ("NaN", "NaN"),
    ],
)
def test_a_text_of_json_is_read(text: str, data: Any) -> None:
    row = {"text": text, "finish_reason": "stop", "tokens": 3, "truncated": False}
    made = generate.to_reply(ended("generate", [row], usage={"prompt_tokens": 2, "completion_tokens": 3}))
    assert (made["text"], made["data"], made["finish_reason"]) == (text, data, "stop")
    assert made["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}


@pytest.mark.parametrize(
    ("to_job", "body", "param"),
    [
        (encode.to_job, {"items": [{"text": "a"}], "param": {}}, "param"),
        (encode.to_job, {"items": [{"text": "a"}], "params": {"output_type": ["dense"]}}, "params.output_type"),
        (encode.to_job, {"items": [{"text": "a"}], "output_types": ["dense"]}, "output_types"),
        (encode.to_job, {"params": {}}, "items"),
        (encode.to_job, {"items": [{"text": "a", "video": {"data": b"x"}}]}, "items[0].video"),
        (encode.to_job, {"items": [{"text": "a", "metadata": 3}]}, "items[0].metadata"),
        (encode.to_job, {"items": [{"text": "a"}, {}]}, "items[1].text"),
        (encode.to_job, {"items": [{"txt": "a"}]}, "items[0].txt"),
        (encode.to_job, {"items": "a"}, "items"),
        (encode.to_job, {"items": []}, "items"),
        (score.to_job, {"items": [{"text": "a"}]}, "query"),
        (score.to_job, {"items": [{"text": "a"}], "query": {}}, "query.text"),
        (score.to_job, {"items": [{"text": "a"}], "query": {"text": "a"}, "params": {}}, "params"),
        (extract.to_job, {"items": [{"text": "a"}], "params": {"label": ["b"]}}, "params.label"),
    ],
)
def test_what_the_peer_would_ignore_is_refused_by_its_name(to_job: ToJob, body: dict[str, Any], param: str) -> None:
    with pytest.raises((InvalidRequest, InvalidOption)) as caught:
        parse_request(to_job("m", body).raw, 10)
    assert caught.value.param == param
