from __future__ import annotations

import numpy as np
import pytest

from catalog.options import OutputDtype
from engine.errors import ItemRejected, NotFinite
from engine.maxsim import maxsim
from engine.multivectors import finish_multivector, read_multivector

ROWS = np.random.default_rng(3).normal(size=(7, 16)).astype(np.float32)


@pytest.mark.parametrize(("dtype", "written"), [(OutputDtype.FLOAT32, "<f4"), (OutputDtype.FLOAT16, "<f2")])
def test_floats_come_row_by_row(dtype: OutputDtype, written: str) -> None:
    found = finish_multivector(ROWS, dtype)
    assert isinstance(found, dict)
    assert (found["num_tokens"], found["token_dims"], found["dtype"]) == (7, 16, dtype.value)
    assert np.array_equal(np.frombuffer(found["values"], written).reshape(7, 16), ROWS.astype(written))


def test_int8_has_one_scale_for_the_item_so_that_ranks_stay() -> None:
    found = finish_multivector(ROWS, OutputDtype.INT8)
    assert isinstance(found, dict)
    back = np.frombuffer(found["values"], "i1").reshape(7, 16).astype(np.float32) * found["scale"]
    assert np.abs(back - ROWS).max() <= found["scale"] / 2 + 1e-6
    assert maxsim(ROWS[:2], [back]) == pytest.approx(maxsim(ROWS[:2], [ROWS]), rel=0.02)


@pytest.mark.parametrize("dtype", [OutputDtype.FLOAT32, OutputDtype.INT8])
def test_no_tokens_and_zeros_are_written(dtype: OutputDtype) -> None:
    for rows in (np.zeros((0, 4)), np.zeros((2, 4))):
        found = finish_multivector(rows, dtype)
        assert isinstance(found, dict)
        assert (found["num_tokens"], set(found["values"])) == (len(rows), {0} if len(rows) else set())


def test_what_cannot_be_written_is_an_error_of_its_own() -> None:
    assert isinstance(finish_multivector(np.array([[np.nan, 1.0]]), OutputDtype.INT8), NotFinite)
    assert isinstance(finish_multivector(np.array([[1e6, 1.0]]), OutputDtype.FLOAT16), NotFinite)
    refused = finish_multivector(ROWS, OutputDtype.UBINARY)
    assert isinstance(refused, ItemRejected)
    assert "ubinary" in refused.message


def test_vectors_that_were_sent_are_read_if_their_width_is_right() -> None:
    sent = {"multivector": {"num_tokens": 7, "token_dims": 16, "values": ROWS.tobytes()}}
    found = read_multivector(sent, 16)
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, ROWS)
    refused = read_multivector(sent, 32)
    assert isinstance(refused, ItemRejected)
    assert "16" in refused.message
    assert read_multivector({"text": "words"}, 16) is None
