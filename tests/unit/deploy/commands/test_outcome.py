from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deploy.commands.outcome import row, told
from roost.results import Item

NUMBERS = np.array([0.5, 1, 2, 3, 4], np.float32)
DENSE = {"dims": 5, "dtype": "float32", "values": NUMBERS.tobytes()}
ROWS = {"token_dims": 2, "num_tokens": 2, "dtype": "float32", "values": NUMBERS[:4].tobytes()}
SPARSE = {
    "dims": 90,
    "dtype": "float32",
    "indices": np.array([1, 2], np.int32).tobytes(),
    "values": NUMBERS[:2].tobytes(),
}
ANNA = {"text": "Anna", "label": "name", "score": 0.91, "start": 0, "end": 4}


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"dense": DENSE, "tokens": 3, "truncated": False}, "5 float32 [0.5, 1, 2, 3, …]"),
        ({"multivector": ROWS}, "2 of 2 float32 [0.5, 1]"),
        ({"sparse": SPARSE}, "2 of 90 dimensions are not zero"),
        ({"score": 0.51239, "rank": 1, "raw_score": 0.1}, "0.5124 (rank 1)"),
        ({"text": "an answer", "finish_reason": "stop"}, "an answer"),
        ({"entities": [ANNA]}, "Anna: name (0.91)"),
        ({"entities": []}, "no entities"),
        ({"relations": [{"head": ANNA, "tail": ANNA, "relation": "knows", "score": 0.5}]}, "Anna knows Anna (0.50)"),
        ({"classifications": [{"label": "spam", "score": 0.5}]}, "spam (0.50)"),
        ({"objects": [{"label": "cat", "score": 0.5, "bbox": [1, 2, 3, 4]}]}, "cat at [1, 2, 3, 4] (0.50)"),
        ({"data": {"markdown": "# A page"}}, "# A page"),
        ({"data": {"total": "12 €"}}, '{"total": "12 €"}'),
        ({"logprobs": [1]}, "logprobs: [1]"),
        ({"error": {"code": "empty_text", "message": "Send some text."}}, "empty_text: Send some text."),
    ],
)
def test_each_kind_of_value_has_a_line(fields: dict[str, Any], line: str) -> None:
    assert told(Item(0, fields)) == line


def test_a_row_has_the_item_s_place_and_id() -> None:
    assert row(Item(3, {"id": "x", "text": "a"})) == (3, "x", "a")
    assert row(Item(3, {"text": "a"}))[1] == "-"
