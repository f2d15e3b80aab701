"""The stored form of a result."""

from __future__ import annotations

import numpy as np

from tasks.results import pack_rows, unpack_rows


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
