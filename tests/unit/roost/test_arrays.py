from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from roost.arrays import dense_of, multivector_of, sparse_of

NUMBERS = np.array([0.5, -0.25, 0.0, 1.0, -1.0, 0.125, 0.25, -0.5, 0.75, -0.75], dtype=np.float32)


def dense(values: NDArray[Any], dtype: str, **more: Any) -> dict[str, Any]:
    return {"dims": len(NUMBERS), "dtype": dtype, "values": values.tobytes(), **more}


@pytest.mark.parametrize(("dtype", "element"), [("float32", "<f4"), ("float16", "<f2")])
def test_floats_come_in_their_own_dtype_and_as_float32(dtype: str, element: str) -> None:
    found = dense_of(dense(NUMBERS.astype(element), dtype))
    assert found.values.dtype == np.dtype(element)
    assert found.floats.dtype == np.float32
    assert found.floats.tolist() == NUMBERS.tolist()


@pytest.mark.parametrize(("dtype", "offset"), [("int8", 0), ("uint8", 128)])
def test_integers_are_floats_by_their_scale(dtype: str, offset: int) -> None:
    scale = 1.0 / 127
    stored = (np.round(NUMBERS / scale) + offset).astype(dtype)
    found = dense_of(dense(stored, dtype, scale=scale))
    assert found.values.dtype == np.dtype(dtype)
    assert found.scale == scale
    assert np.abs(found.floats - NUMBERS).max() <= scale / 2
    assert found.bits.tolist() == (NUMBERS > 0).tolist()


@pytest.mark.parametrize("dtype", ["ubinary", "binary"])
def test_bits_are_unpacked_to_a_truth_for_each_dimension_and_no_more(dtype: str) -> None:
    octets = np.packbits(NUMBERS > 0)
    stored = octets if dtype == "ubinary" else (octets.astype(np.int16) - 128).astype(np.int8)
    found = dense_of(dense(stored, dtype))
    assert found.values.shape == (2,)
    assert found.bits.tolist() == (NUMBERS > 0).tolist()
    assert found.floats.tolist() == (NUMBERS > 0).astype(float).tolist()


def test_a_multivector_has_a_row_for_each_token() -> None:
    told = {"token_dims": 5, "num_tokens": 2, "dtype": "float32", "values": NUMBERS.tobytes()}
    assert multivector_of(told).values.tolist() == NUMBERS.reshape(2, 5).tolist()


def test_the_bits_of_a_multivector_are_unpacked_row_by_row() -> None:
    truths = NUMBERS.reshape(2, 5) > 0
    octets = np.packbits(truths, axis=1)
    told = {"token_dims": 5, "num_tokens": 2, "dtype": "ubinary", "values": octets.tobytes()}
    assert multivector_of(told).bits.tolist() == truths.tolist()


def test_a_multivector_without_tokens_has_no_rows() -> None:
    told = {"token_dims": 5, "num_tokens": 0, "dtype": "float32", "values": b""}
    assert len(multivector_of(told).values) == 0


def test_a_sparse_vector_is_made_whole_on_demand() -> None:
    indices, values = np.array([1, 4], np.int32), np.array([0.5, 2.0], np.float32)
    found = sparse_of({"dims": 6, "dtype": "float32", "indices": indices.tobytes(), "values": values.tobytes()})
    assert found.dense.tolist() == [0, 0.5, 0, 0, 2.0, 0]
