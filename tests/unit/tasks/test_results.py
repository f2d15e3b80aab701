"""The stored form of a result."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.results import finite, pack_rows, unpack_rows


def test_arrays_stay_bytes_all_the_way() -> None:
    vector = np.array([0.1, -2.0, 3.5], dtype="<f4")
    rows: list[dict[str, object]] = [
        {
            "id": "a",
            "dense": {"dims": 3, "dtype": "float32", "values": vector.tobytes()},
            "tokens": 4,
            "truncated": False,
        },
        {"id": "b", "error": {"code": "empty_text", "message": "m", "retryable": False}},
    ]

    back = unpack_rows(pack_rows(rows))

    assert back == rows
    assert np.array_equal(np.frombuffer(back[0]["dense"]["values"], dtype="<f4"), vector)


def test_the_order_of_the_items_is_kept() -> None:
    rows = [{"id": str(number)} for number in range(50, 0, -1)]

    assert unpack_rows(pack_rows(rows)) == rows


def test_a_vector_costs_little_more_than_its_bytes() -> None:
    row = {"dense": {"dims": 384, "dtype": "float32", "values": bytes(1536)}, "tokens": 9}

    assert len(pack_rows([row])) < 1536 + 64


def test_half_a_surrogate_pair_in_an_answer_does_not_lose_the_others() -> None:
    assert unpack_rows(pack_rows([{"text": "a\ud83d"}, {"text": "b\0"}])) == [{"text": "a?"}, {"text": "b\0"}]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_has_not_is_found_wherever_it_is(bad: float) -> None:
    assert finite({"score": 1.5, "entities": [{"score": 0.5}], "data": {"a": [None, True, "nan", b"x"]}})
    for row in ({"score": bad}, {"entities": [{"score": 1.0}, {"score": bad}]}, {"data": {"a": [[bad]]}}):
        assert not finite(row)
