"""Bodies of other services' requests."""

from __future__ import annotations

import pytest

from api.compat.shapes import shaped
from tasks.errors import InvalidRequest
from tasks.items import Strict


class Asked(Strict):
    input: str
    encoding_format: str | None = None


def test_a_body_of_the_right_shape_is_read() -> None:
    assert shaped(Asked, {"input": "a", "encoding_format": None}).input == "a"


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ([], None, "must be a JSON object"),
        ("text", None, "must be a JSON object"),
        ({}, "input", "'input' is missing"),
        ({"input": 3}, "input", "'input' must be a valid string"),
        ({"input": "a", "encoding_fromat": "float"}, "encoding_fromat", "did you mean 'encoding_format'?"),
    ],
)
def test_a_fault_names_the_field_and_the_nearest_one(body: object, param: str | None, said: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        shaped(Asked, body)
    assert raised.value.param == param
    assert said in raised.value.message
