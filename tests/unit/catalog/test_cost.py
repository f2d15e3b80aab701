from __future__ import annotations

from typing import Any

import pytest

from catalog.cost import CPU_BASE_MS, UNIT_TOKENS, WEIGHTLESS, coefficients, predict, shape
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
    assert sum(predict(WEIGHTLESS, [8192])) < 1


def test_a_jobs_items_add_up_to_one_batch_without_padding() -> None:
    found = coefficients(spec(), "cpu")
    costs = predict(found, [100, 100, 100])
    assert sum(costs) == pytest.approx(found.batch(3, 100))


def test_a_longer_item_costs_more() -> None:
    short, long = predict(coefficients(spec(), "cpu"), [10, 500])
    assert long > short > 0


def test_no_items_cost_nothing() -> None:
    assert predict(WEIGHTLESS, []) == []


def test_a_model_whose_spec_tells_its_width_gets_its_attention() -> None:
    small = spec(parameters=22_713_216, tasks={"encode": {"dims": 384}})
    assert shape(small) == (6, 384)
    assert coefficients(small, "cpu").per_square == pytest.approx(4 * 6 * 384 / 2e8)


@pytest.mark.parametrize("dims", [8, 20_000])
def test_vectors_too_narrow_or_wide_to_be_the_models_own_width_tell_nothing(dims: int) -> None:
    assert shape(spec(tasks={"encode": {"dims": dims}})) == (0, 0)


@pytest.mark.parametrize(("unit", "tokens"), UNIT_TOKENS.items())
def test_a_unit_costs_what_its_tokens_cost(unit: str, tokens: int) -> None:
    assert coefficients(spec(unit=unit), "cpu").per_token == pytest.approx(tokens)


def test_a_model_that_generates_reads_its_weights_for_each_new_token() -> None:
    found = coefficients(spec(tasks={"generate": {}}), "cpu")
    assert found.per_new == pytest.approx(50.0)
    assert coefficients(spec(tasks={"generate": {}}), "cuda").per_new < 1
    assert coefficients(spec(), "cpu").per_new == 0


def test_new_tokens_are_paid_for_each_item() -> None:
    found = CostCoefficients(base=2, per_token=1, per_new=10)
    assert predict(found, [5, 7], new=3) == [36, 38]
