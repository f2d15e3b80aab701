from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from catalog.options import EncodeOptions, OutputDtype
from engine.errors import EngineError, ItemRejected, NotFinite
from engine.outputs import Vector, finish_vectors

DTYPES = {"float32": "<f4", "float16": "<f2", "int8": "i1", "uint8": "u1"}


def opened(finished: dict[str, Any] | EngineError) -> NDArray[np.float64]:
    assert isinstance(finished, dict)
    values = np.frombuffer(finished["values"], dtype=DTYPES[finished["dtype"]]).astype(np.float64)
    if finished["dtype"] == "uint8":
        values = values - 128
    return np.asarray(values * finished.get("scale", 1.0))


def cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def finish_vector(vector: NDArray[Any], options: EncodeOptions) -> Vector:
    (finished,) = finish_vectors(np.asarray(vector)[None, :], [options])
    assert isinstance(finished, dict)
    return finished


@pytest.fixture
def matrix() -> NDArray[np.float32]:
    return np.random.default_rng(7).normal(size=(6, 384)).astype(np.float32)


def test_plain_float32_is_the_vector_itself(matrix: NDArray[np.float32]) -> None:
    finished = finish_vector(matrix[0], EncodeOptions(normalize=False))
    assert finished == {"dims": 384, "dtype": "float32", "values": matrix[0].astype("<f4").tobytes()}


def test_normalize_gives_norm_one(matrix: NDArray[np.float32]) -> None:
    values = opened(finish_vector(matrix[0], EncodeOptions()))
    assert np.linalg.norm(values) == pytest.approx(1, abs=1e-6)
    assert cosine(values, matrix[0]) == pytest.approx(1)


def test_a_cut_vector_is_normalised_after_the_cut(matrix: NDArray[np.float32]) -> None:
    whole = opened(finish_vector(matrix[0], EncodeOptions()))
    cut = opened(finish_vector(matrix[0], EncodeOptions(dimensions=64)))
    assert len(cut) == 64
    np.testing.assert_allclose(cut, whole[:64] / np.linalg.norm(whole[:64]), atol=1e-6)


def test_a_cut_without_normalising_keeps_the_values(matrix: NDArray[np.float32]) -> None:
    cut = opened(finish_vector(matrix[0], EncodeOptions(dimensions=64, normalize=False)))
    np.testing.assert_array_equal(cut, matrix[0, :64])


def test_a_zero_vector_stays_zero_in_every_type() -> None:
    for dtype in DTYPES:
        values = opened(finish_vector(np.zeros(16), EncodeOptions(output_dtype=OutputDtype(dtype))))
        np.testing.assert_array_equal(values, np.zeros(16))


@pytest.mark.parametrize("dtype", ["binary", "ubinary"])
@pytest.mark.parametrize("dims", [384, 13])
def test_bits_equal_the_librarys_own(matrix: NDArray[np.float32], dtype: str, dims: int) -> None:
    from sentence_transformers.util import quantize_embeddings

    rows = matrix[:, :dims].copy()
    rows[0, 0] = 0.0
    expected = np.asarray(quantize_embeddings(rows, precision=dtype))  # type: ignore[arg-type]
    finished = finish_vectors(rows, [EncodeOptions(output_dtype=OutputDtype(dtype))] * len(rows))
    for row, one in zip(expected, finished, strict=True):
        assert isinstance(one, dict)
        assert one["dims"] == dims
        assert one["values"] == row.tobytes()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_scaled_integers_keep_the_cosine(matrix: NDArray[np.float32], dtype: str) -> None:
    for normalize in (True, False):
        options = EncodeOptions(normalize=normalize, output_dtype=OutputDtype(dtype))
        for row in matrix:
            assert cosine(opened(finish_vector(row, options)), row) > 0.999


def test_int8_reaches_127_and_never_128(matrix: NDArray[np.float32]) -> None:
    finished = finish_vector(matrix[0], EncodeOptions(output_dtype=OutputDtype.INT8))
    values = np.frombuffer(finished["values"], dtype=np.int8)
    assert np.abs(values.astype(int)).max() == 127


def test_rows_of_one_batch_keep_their_own_options(matrix: NDArray[np.float32]) -> None:
    options = [
        EncodeOptions(),
        EncodeOptions(dimensions=128, output_dtype=OutputDtype.FLOAT16),
        EncodeOptions(normalize=False),
        EncodeOptions(output_dtype=OutputDtype.UBINARY),
        EncodeOptions(dimensions=64, normalize=False, output_dtype=OutputDtype.INT8),
        EncodeOptions(),
    ]
    alone = [finish_vector(row, option) for row, option in zip(matrix, options, strict=True)]
    assert finish_vectors(matrix, options) == alone


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_fails_alone(matrix: NDArray[np.float32], bad: float) -> None:
    spoilt = matrix.copy()
    spoilt[2, 100] = bad
    finished = finish_vectors(spoilt, [EncodeOptions()] * 6)
    assert isinstance(finished[2], NotFinite)
    expected = finish_vectors(matrix, [EncodeOptions()] * 6)
    assert [f for i, f in enumerate(finished) if i != 2] == [f for i, f in enumerate(expected) if i != 2]


def test_a_value_beyond_float16_is_an_item_error_not_infinity() -> None:
    options = EncodeOptions(normalize=False, output_dtype=OutputDtype.FLOAT16)
    finished = finish_vectors(np.array([[1e6, 1.0], [2.0, 1.0]]), [options] * 2)
    assert isinstance(finished[0], NotFinite)
    assert "float16" in finished[0].message
    np.testing.assert_array_equal(opened(finished[1]), [2.0, 1.0])


@pytest.mark.parametrize("dimensions", [0, -1, 385])
def test_impossible_dimensions_reject_that_item_alone(matrix: NDArray[np.float32], dimensions: int) -> None:
    finished = finish_vectors(matrix[:2], [EncodeOptions(dimensions=dimensions), EncodeOptions()])
    assert isinstance(finished[0], ItemRejected)
    assert isinstance(finished[1], dict)


def test_a_matrix_of_other_items_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit 2 items"):
        finish_vectors(np.zeros((3, 5)), [EncodeOptions()] * 2)


@settings(max_examples=60, deadline=None)
@given(
    arrays.arrays(np.float32, (3, 9), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
    st.sampled_from(["int8", "uint8", "float32"]),
    st.booleans(),
)
def test_no_finite_input_ever_warns_or_breaks(rows: NDArray[np.float32], dtype: str, normalize: bool) -> None:
    options = EncodeOptions(normalize=normalize, output_dtype=OutputDtype(dtype))
    for finished in finish_vectors(rows, [options] * 3):
        assert np.isfinite(opened(finished)).all()


def test_a_batch_costs_little_per_item(matrix: NDArray[np.float32]) -> None:
    rows = np.tile(matrix, (20, 1))
    options = [EncodeOptions()] * len(rows)
    best = float("inf")
    for _ in range(10):
        started = time.perf_counter()
        finish_vectors(rows, options)
        best = min(best, time.perf_counter() - started)
    assert best / len(rows) < 50e-6
