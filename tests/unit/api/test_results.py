from __future__ import annotations

import base64
from typing import Any

import msgpack
import numpy as np
import orjson
import pytest

from api.media import Media, dumps
from api.results import encoding_of, result_object, rows_of
from catalog.options import EncodeOptions, OutputDtype
from engine.multivectors import finish_multivector
from engine.outputs import finish_vectors
from tasks.errors import InvalidRequest
from tasks.rendering import Encoding
from tasks.results import pack_rows

VECTOR = np.array([0.5, -0.25, 0.125, -1.0, 0.0, 2.0, -3.0, 1.0, 0.75], dtype=np.float32)


def stored(dtype: OutputDtype) -> dict[str, Any]:
    """What the engine stores for VECTOR."""
    (vector,) = finish_vectors(VECTOR[None, :], [EncodeOptions(normalize=False, output_dtype=dtype)])
    assert isinstance(vector, dict)
    return vector


def shown(row: dict[str, Any], media: Media = Media.JSON, encoding: Encoding = Encoding.FLOAT) -> dict[str, Any]:
    data = dumps(rows_of(pack_rows([row]), media, encoding), media)
    found: list[dict[str, Any]] = orjson.loads(data) if media is Media.JSON else msgpack.unpackb(data)
    return found[0]


@pytest.mark.parametrize("dtype", list(OutputDtype))
def test_numbers_are_those_of_the_stored_bytes(dtype: OutputDtype) -> None:
    vector = stored(dtype)
    kind = {"float32": "<f4", "float16": "<f2", "int8": "i1", "uint8": "u1", "binary": "i1", "ubinary": "u1"}[dtype]
    found = shown({"dense": vector})["dense"]
    assert found["dims"] == len(VECTOR)
    assert found["dtype"] == dtype.value
    np.testing.assert_array_equal(np.array(found["values"], dtype=kind), np.frombuffer(vector["values"], kind))


def test_binary_packs_eight_dimensions_into_a_number() -> None:
    unsigned, signed = (shown({"dense": stored(d)})["dense"] for d in (OutputDtype.UBINARY, OutputDtype.BINARY))
    assert unsigned["values"] == [0b10100101, 0b10000000]
    assert signed["values"] == [0b10100101 - 128, 0]


@pytest.mark.parametrize("dtype", list(OutputDtype))
def test_base64_holds_the_stored_bytes(dtype: OutputDtype) -> None:
    vector = stored(dtype)
    assert base64.b64decode(shown({"dense": vector}, encoding=Encoding.BASE64)["dense"]["values"]) == vector["values"]


@pytest.mark.parametrize("encoding", list(Encoding))
def test_msgpack_holds_the_stored_bytes_whatever_the_encoding(encoding: Encoding) -> None:
    vector = stored(OutputDtype.FLOAT16)
    assert shown({"dense": vector}, Media.MSGPACK, encoding)["dense"]["values"] == vector["values"]


def test_floats_in_json_are_exact() -> None:
    values = np.array([0.1, 1e-8, 3.4e38], dtype="<f4")
    row = {"dense": {"dims": 3, "dtype": "float32", "values": values.tobytes()}}
    np.testing.assert_array_equal(np.array(shown(row)["dense"]["values"], dtype="<f4"), values)


def test_what_is_no_array_passes_as_it_is() -> None:
    row = {"id": "a", "error": {"code": "empty_text", "message": "m", "retryable": False}}
    assert shown(row) == row


def test_the_scale_of_a_quantised_vector_is_told() -> None:
    assert shown({"dense": stored(OutputDtype.INT8)})["dense"]["scale"] == pytest.approx(3.0 / 127)


def test_a_result_names_its_job() -> None:
    body = result_object("j", "succeeded", "m", {"tokens": 3}, [])
    assert (body["id"], body["object"], body["status"], body["usage"]) == ("j", "result", "succeeded", {"tokens": 3})


def test_encodings_are_named() -> None:
    assert encoding_of(None) is Encoding.FLOAT
    assert encoding_of("base64") is Encoding.BASE64
    with pytest.raises(InvalidRequest, match="'float' or 'base64'"):
        encoding_of("hex")


SPARSE = {
    "dims": 30_000,
    "dtype": "float32",
    "indices": np.array([7, 29_999], dtype="<i4").tobytes(),
    "values": np.array([0.5, 1.25], dtype="<f4").tobytes(),
}
ROWS = np.array([[1.0, -2.0, 3.0], [0.5, 0.0, -1.0]], dtype=np.float32)


def test_a_sparse_vector_is_told_by_its_indices_and_values() -> None:
    assert shown({"sparse": SPARSE})["sparse"] == {**SPARSE, "indices": [7, 29_999], "values": [0.5, 1.25]}
    packed = shown({"sparse": SPARSE}, encoding=Encoding.BASE64)["sparse"]
    assert {name: base64.b64decode(packed[name]) for name in ("indices", "values")} == {
        name: SPARSE[name] for name in ("indices", "values")
    }
    assert shown({"sparse": SPARSE}, Media.MSGPACK)["sparse"] == SPARSE


def test_a_sparse_vector_may_be_empty() -> None:
    empty = {**SPARSE, "indices": b"", "values": b""}
    assert shown({"sparse": empty})["sparse"] == {**SPARSE, "indices": [], "values": []}


@pytest.mark.parametrize("dtype", [OutputDtype.FLOAT32, OutputDtype.FLOAT16, OutputDtype.INT8])
def test_a_multivector_is_told_row_by_row(dtype: OutputDtype) -> None:
    vectors = finish_multivector(ROWS, dtype)
    assert isinstance(vectors, dict)
    kind = {OutputDtype.FLOAT32: "<f4", OutputDtype.FLOAT16: "<f2", OutputDtype.INT8: "i1"}[dtype]
    found = shown({"multivector": vectors})["multivector"]
    assert (found["num_tokens"], found["token_dims"]) == (2, 3)
    assert np.array(found["values"], dtype=kind).tobytes() == vectors["values"]
    assert np.array(found["values"]).shape == (2, 3)
    packed = shown({"multivector": vectors}, encoding=Encoding.BASE64)["multivector"]
    assert base64.b64decode(packed["values"]) == vectors["values"]
    assert shown({"multivector": vectors}, Media.MSGPACK)["multivector"] == vectors


def test_a_multivector_may_be_empty() -> None:
    empty = {"token_dims": 3, "num_tokens": 0, "dtype": "float32", "values": b""}
    assert shown({"multivector": empty})["multivector"]["values"] == []


def test_a_map_of_findings_that_has_values_is_no_array() -> None:
    row = {"data": {"values": ["a", "b"], "dtype": "x"}}
    assert shown(row) == row


def test_a_ranking_stands_beside_the_items() -> None:
    scores = [{"index": 0, "score": 0.5, "rank": 0}]
    assert result_object("j", "succeeded", "m", None, [], scores)["scores"] == scores
    assert "scores" not in result_object("j", "succeeded", "m", None, [])
