from __future__ import annotations

from typing import Any

import pytest

from catalog.cost import CPU_BASE_MS, WEIGHTLESS, coefficients, predict
from catalog.schema import CostCoefficients, Spec


def spec(**more: Any) -> Spec:
    facts = {
        "id": "org/m",
        "family": "fake",
        "tasks": {"encode": {"dims": 8}},
        "parameters": 100_000_000,
        "max_length": 512,
    }
    return Spec.model_validate(facts | more)


def test_a_spec_of_its_own_coefficients_is_taken_at_its_word() -> None:
    own = CostCoefficients(base=1, per_token=2, per_square=3)
    assert coefficients(spec(cost=own.model_dump()), "cuda") == own


def test_the_guess_is_two_operations_per_weight_and_token() -> None:
    assert coefficients(spec(), "cpu") == CostCoefficients(base=CPU_BASE_MS, per_token=1.0)


def test_known_layers_add_attention() -> None:
    found = coefficients(spec(), "cpu", layers=10, hidden=1_000)
    assert found.per_square == pytest.approx(4 * 10 * 1_000 / 2e8)


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_card_is_quicker_per_token(device: str) -> None:
    assert coefficients(spec(), device).per_token < coefficients(spec(), "cpu").per_token / 50


def test_a_model_without_weights_costs_next_to_nothing() -> None:
    assert coefficients(spec(parameters=0), "cuda") == WEIGHTLESS
    assert sum(predict(spec(parameters=0), [8192], "cpu")) < 1


def test_a_jobs_items_add_up_to_one_batch_without_padding() -> None:
    found = coefficients(spec(), "cpu")
    costs = predict(spec(), [100, 100, 100], "cpu")
    assert sum(costs) == pytest.approx(found.batch(3, 100))


def test_a_longer_item_costs_more() -> None:
    short, long = predict(spec(), [10, 500], "cpu")
    assert long > short > 0


def test_no_items_cost_nothing() -> None:
    assert predict(spec(), [], "cpu") == []
