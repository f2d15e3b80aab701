from __future__ import annotations

from typing import Any

import pytest

from catalog.footprint import expected_weights, never_fits
from catalog.schema import Spec


def spec(parameters: int) -> Spec:
    return Spec.model_validate(
        {
            "id": "org/m",
            "family": "f",
            "tasks": {"encode": {"dims": 4}},
            "parameters": parameters,
            "max_length": 8,
        }
    )


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({}, 4000),
        ({"dtype": "float16"}, 2000),
        ({"dtype": "bfloat16"}, 2000),
        ({"dtype": "int8"}, 1000),
        ({"dtype": "int4"}, 500),
        ({"dtype": None}, 4000),
        ({"dtype": "auto"}, 4000),
    ],
)
def test_weights_take_what_their_type_does(load: dict[str, Any], expected: int) -> None:
    assert expected_weights(spec(1000), load) == expected


def test_a_model_that_counts_no_parameters_is_expected_to_take_nothing() -> None:
    assert expected_weights(spec(0), {}) == 0


def test_a_model_fits_if_it_does_beside_the_pinned_ones() -> None:
    assert not never_fits(600, 100, 1000, beside=300)
    assert never_fits(600, 101, 1000, beside=300)
