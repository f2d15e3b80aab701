from __future__ import annotations

import numpy as np
import pytest

from catalog.options import OutputDtype
from engine.errors import ItemRejected, NotFinite
from engine.sparse import finish_sparse


@pytest.mark.parametrize(("dtype", "written"), [(OutputDtype.FLOAT32, "<f4"), (OutputDtype.FLOAT16, "<f2")])
def test_indices_rise_and_zeros_are_left_out(dtype: OutputDtype, written: str) -> None:
    found = finish_sparse(np.array([9, 2, 5]), np.array([0.5, 2.0, 0.0]), 10, dtype)
    assert isinstance(found, dict)
    assert (found["dims"], found["dtype"]) == (10, dtype.value)
    assert np.frombuffer(found["indices"], "<i4").tolist() == [2, 9]
    assert np.frombuffer(found["values"], written).tolist() == [2.0, 0.5]


def test_a_weight_too_small_for_half_precision_is_left_out_with_its_index() -> None:
    found = finish_sparse(np.array([1, 3]), np.array([1e-9, 1.0]), 10, OutputDtype.FLOAT16)
    assert isinstance(found, dict)
    assert np.frombuffer(found["indices"], "<i4").tolist() == [3]


def test_an_empty_vector_is_a_vector() -> None:
    found = finish_sparse(np.array([], dtype=np.int64), np.array([]), 10, OutputDtype.FLOAT32)
    assert found == {"dims": 10, "dtype": "float32", "indices": b"", "values": b""}


def test_what_cannot_be_written_is_an_error_of_its_own() -> None:
    one = np.array([1])
    assert isinstance(finish_sparse(one, np.array([np.inf]), 10, OutputDtype.FLOAT32), NotFinite)
    assert isinstance(finish_sparse(one, np.array([1e6]), 10, OutputDtype.FLOAT16), NotFinite)
    refused = finish_sparse(one, np.array([1.0]), 10, OutputDtype.INT8)
    assert isinstance(refused, ItemRejected)
    assert "int8" in refused.message
