from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from tasks.vectors import MAX_VECTORS, as_vectors

ROWS = [[0.5, -1.0, 2.0], [0.25, 0.0, 3.0]]
VALUES = np.array(ROWS, dtype="<f4").tobytes()
STORED = {"num_tokens": 2, "token_dims": 3, "values": VALUES}


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        [[0.5, -1, 2], [0.25, 0, 3]],
        STORED,
        {**STORED, "values": base64.b64encode(VALUES).decode()},
        {"num_tokens": 2, "token_dims": 3, "dtype": "float32", "values": ROWS},
        {"token_dims": 3, "dtype": "float16", "values": np.array(ROWS, dtype="<f2").tobytes()},
    ],
)
def test_every_form_of_vectors_becomes_the_stored_one(given: object) -> None:
    assert as_vectors(given) == STORED


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "list of vectors"),
        ("abc", "list of vectors"),
        (b"abc", "list of vectors"),
        ([[]], "lists of numbers"),
        ([1.0, 2.0], "lists of numbers"),
        ([[1.0], [1.0, 2.0]], "one length"),
        ([[1.0, "2"]], "lists of numbers"),
        ([[True, 1.0]], "lists of numbers"),
        ([[1.0, None]], "lists of numbers"),
        ([[1.0, float("nan")]], "finite"),
        ([[1e300]], "finite"),
        ([[0.0]] * (MAX_VECTORS + 1), "at most"),
        ({**STORED, "values": VALUES[:-1]}, "token_dims"),
        ({**STORED, "num_tokens": 3}, "num_tokens"),
        ({**STORED, "token_dims": 0}, "token_dims"),
        ({**STORED, "token_dims": True}, "token_dims"),
        ({"values": VALUES}, "token_dims"),
        ({"num_tokens": 2, "token_dims": 3}, "values"),
        ({**STORED, "values": "%%%"}, "base64"),
        ({**STORED, "dtype": "int8"}, "float32"),
        ({**STORED, "dtype": ["float32"]}, "float32"),
        ({**STORED, "scale": 2.0}, "scale"),
        ({**STORED, "values": np.array([np.inf] * 6, dtype="<f4").tobytes()}, "finite"),
    ],
)
def test_what_is_wrong_with_vectors_is_said(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        as_vectors(given)
