from __future__ import annotations

import base64
from typing import Any

import msgpack
import numpy as np
import orjson
import pytest

from api.media import Media, dumps
from api.results import Encoding, encoding_of, result_object, rows_of
from catalog.options import EncodeOptions, OutputDtype
from engine.outputs import finish_vectors
from tasks.errors import InvalidRequest
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
