from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest

from api.compat.sie.arrays import array, number, vectors, written
from api.media import Media, dumps
from tasks.errors import InvalidRequest
from tests.unit.api.compat.sie import golden


def test_an_array_is_written_as_the_peer_writes_it() -> None:
    assert dumps(array(np.array([1, 2], "<f4").tobytes(), "<f4", 2), Media.MSGPACK) == golden.ARRAY


@pytest.mark.parametrize("dtype", ["<f4", "<f2", "<f8", ">f4", "|i1"])
def test_an_array_of_rows_is_read_in_any_type_of_numbers(dtype: str) -> None:
    data = np.array([[1, 2], [3, 4], [5, 6]], dtype)
    found = vectors(array(data.tobytes(), dtype, 3, 2), "items[0].multivector")
    assert (found["num_tokens"], found["token_dims"]) == (3, 2)
    stored = {"float32": "<f4", "float16": "<f2"}[found["dtype"]]
    assert np.frombuffer(found["values"], stored).tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({b"type": "|O8"}, "array of numbers"),
        ({b"kind": b"O"}, "array of numbers"),
        ({b"nd": False}, "array of numbers"),
        ({b"shape": [2]}, "two dimensions"),
        ({b"shape": [1, -2]}, "two dimensions"),
        ({b"shape": [True, 2]}, "two dimensions"),
        ({b"shape": [2, 2]}, "as its shape says"),
        ({b"data": "text"}, "as its shape says"),
    ],
)
def test_an_array_that_is_none_is_refused(wrong: dict[bytes, Any], said: str) -> None:
    value = {**array(b"\0" * 8, "<f4", 1, 2), **wrong}
    with pytest.raises(InvalidRequest, match=said) as caught:
        vectors(value, "query.multivector")
    assert caught.value.param == "query.multivector"


def test_a_number_of_numpys_is_a_number() -> None:
    assert number({b"nd": False, b"type": "<f4", b"data": np.float32(0.5).tobytes()}) == 0.5
    assert number(7) == 7


@pytest.mark.parametrize("broken", [{b"type": "|O8"}, {b"type": 4}, {b"data": b""}, {b"data": "x"}])
def test_a_number_that_is_none_is_left_for_the_check_of_options(broken: dict[bytes, Any]) -> None:
    value = {b"nd": False, b"type": "<f4", b"data": b"\0\0\0\0", **broken}
    assert number(value) is value


def rows() -> list[dict[str, Any]]:
    return [
        {
            "dense": {"dims": 16, "dtype": "ubinary", "values": b"\x01\xff"},
            "sparse": {
                "dims": 9, "dtype": "float16",
                "indices": np.array([3, 8], "<i4").tobytes(), "values": np.array([1, 2], "<f2").tobytes(),
            },
            "multivector": {"token_dims": 3, "num_tokens": 2, "dtype": "int8", "scale": 0.1, "values": bytes(range(6))},
        }
    ]  # fmt: skip


def test_stored_vectors_are_arrays_in_msgpack() -> None:
    (row,) = written(rows(), Media.MSGPACK)
    assert row["dense"]["values"] == array(b"\x01\xff", "|u1", 2)
    assert row["sparse"]["indices"] == array(np.array([3, 8], "<i4").tobytes(), "<i4", 2)
    assert row["sparse"]["values"] == array(np.array([1, 2], "<f2").tobytes(), "<f2", 2)
    assert row["multivector"]["values"] == array(bytes(range(6)), "|i1", 2, 3)
    assert row["multivector"]["scale"] == 0.1


def test_stored_vectors_are_lists_in_json() -> None:
    made = dumps(written(rows(), Media.JSON))
    assert b'"values":[1,255]' in made
    assert b'"indices":[3,8],"values":[1.0,2.0]' in made
    assert b'"values":[[0,1,2],[3,4,5]]' in made


def test_a_multivector_of_no_tokens_keeps_its_width() -> None:
    row = {"multivector": {"token_dims": 3, "num_tokens": 0, "dtype": "float32", "values": b""}}
    assert written([row], Media.MSGPACK)[0]["multivector"]["values"] == array(b"", "<f4", 0, 3)


def test_keys_of_arrays_are_binary() -> None:
    read = msgpack.unpackb(dumps(array(b"", "<f4", 0), Media.MSGPACK), strict_map_key=False)
    assert all(isinstance(key, bytes) for key in read)
