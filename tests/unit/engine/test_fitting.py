"""The fit of costs finds coefficients, keeps its head when a machine stalls, and follows one that changes."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.fitting import Fit, Row, least_squares, prior, restored

COUNTS = st.integers(1, 64)
LENGTHS = st.integers(1, 512)


def row(count: int, length: int) -> Row:
    return (1.0, float(count * length), float(count * length * length))


def cost(true: Row, one: Row) -> float:
    return sum(theta * x for theta, x in zip(true, one, strict=True))


def begun(guess: Row) -> Fit:
    return prior(guess, [row(8, 32), row(4, 128), row(1, 512)])


def rows(count: int, seed: int) -> list[Row]:
    dice = random.Random(seed)
    lengths = [dice.randint(4, 512) for _ in range(count)]
    return [row(max(1, min(2048 // length, dice.randint(1, 64))), length) for length in lengths]


def taught(fit: Fit, true: Row, noise: float, passes: int, seed: int = 1) -> Fit:
    dice = random.Random(seed)
    for one in rows(passes, seed):
        fit = fit.learn(one, cost(true, one) * math.exp(dice.gauss(0, noise) - noise**2 / 2))
    return fit


def error(fit: Fit, true: Row) -> float:
    """The mean size of the logarithm of predicted over true, over passes that it has not seen."""
    unseen = rows(50, 99)
    return sum(abs(math.log(fit.predict(one) / cost(true, one))) for one in unseen) / len(unseen)


MACHINES = st.tuples(st.floats(0.5, 20), st.floats(0.01, 2), st.floats(0, 1e-3))
WRONG = st.sampled_from([0.01, 0.2, 1.0, 7.0, 100.0])


@settings(max_examples=40, deadline=None)
@given(MACHINES, WRONG, st.integers(0, 1000))
def test_the_coefficients_are_recovered_from_noisy_passes(true: Row, wrong: float, seed: int) -> None:
    fit = taught(begun((5.0 * wrong, 0.2 * wrong, 0.0)), true, 0.05, 300, seed)
    assert error(fit, true) < 0.05
    assert fit.coefficients[1] == pytest.approx(true[1], rel=0.3, abs=0.02)


@settings(max_examples=40, deadline=None)
@given(MACHINES, WRONG)
def test_predictions_get_better(true: Row, wrong: float) -> None:
    first = begun((5.0 * wrong, 0.2 * wrong, 0.0))
    last = taught(first, true, 0.1, 150)
    assert error(last, true) < max(0.08, error(first, true) / 2)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            COUNTS,
            st.integers(0, 10**7),
            st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.floats(1e-12, 1e12)),
        ),
        max_size=60,
    )
)
def test_whatever_comes_the_fit_stays_finite_and_never_negative(passes: list[tuple[int, int, float]]) -> None:
    fit = begun((2.0, 0.2, 0.0))
    for count, length, ms in passes:
        fit = fit.learn(row(count, length), ms)
        assert all(math.isfinite(one) and one >= 0 for one in fit.coefficients)
        assert 0 < fit.predict(row(8, 64)) < math.inf
    assert restored(orjson.loads(orjson.dumps(fit.state()))) == replace(fit, surprises=())


@pytest.mark.parametrize("factor", [10.0, 1000.0, 0.1, 0.001])
def test_one_stalled_pass_barely_moves_it(factor: float) -> None:
    true = (3.0, 0.4, 0.0004)
    fit = taught(begun(true), true, 0.05, 200)
    one = row(8, 128)
    usual = fit.predict(one)
    after = fit.learn(one, usual * factor).learn(one, usual)
    assert after.seen == fit.seen + 2
    assert after.predict(one) == pytest.approx(fit.predict(one), rel=0.03)


@pytest.mark.parametrize("factor", [0.2, 3.0, 10.0])
@pytest.mark.parametrize("same", [True, False])
def test_a_machine_that_changes_is_followed_within_twenty_passes(factor: float, same: bool) -> None:
    true = (3.0, 0.4, 0.0004)
    fit = taught(begun(true), true, 0.05, 200)
    for one in [row(8, 128)] * 20 if same else rows(20, 5):
        fit = fit.learn(one, factor * cost(true, one))
    assert error(fit, (3.0 * factor, 0.4 * factor, 0.0004 * factor)) < 0.05


def test_a_slow_drift_is_followed() -> None:
    true = (3.0, 0.4, 0.0004)
    fit = taught(begun(true), true, 0.05, 200)
    for one in rows(400, 6):
        fit = fit.learn(one, 1.3 * cost(true, one))
    assert error(fit, (3.9, 0.52, 0.00052)) < 0.05


def test_passes_of_one_size_leave_the_shares_of_the_guess() -> None:
    fit = begun((2.0, 0.2, 0.0002))
    ms = 3 * fit.predict(row(8, 128))
    for _ in range(200):
        fit = fit.learn(row(8, 128), ms)
    assert fit.predict(row(8, 128)) == pytest.approx(ms, rel=0.01)
    base, per_token, per_square = fit.coefficients
    assert base / per_token == pytest.approx(10, rel=0.5)
    assert per_square / per_token == pytest.approx(0.001, rel=0.5)


def test_what_cannot_be_teaches_nothing() -> None:
    fit = begun((2.0, 0.2, 0.0))
    assert [fit.learn(row(1, 1), ms) for ms in (0.0, -1.0, math.nan, math.inf)] == [fit] * 4
    assert fit.learn((1.0, -5.0, 1.0), 3.0) == fit


@pytest.mark.parametrize("state", [[], [0.0] * 17, [math.nan] * 18, [-1.0] * 18])
def test_a_state_that_is_none_is_refused(state: list[float]) -> None:
    with pytest.raises(ValueError, match="no state"):
        restored(state)


@given(st.lists(st.tuples(*[st.floats(-3, 3)] * 4), min_size=3, max_size=6))
def test_no_other_non_negative_point_is_better(equations: list[tuple[float, ...]]) -> None:
    moments = [[sum(e[i] * e[j] for e in equations) + (i == j) for j in range(3)] for i in range(3)]
    cross = [sum(e[i] * e[3] for e in equations) for i in range(3)]

    def objective(theta: Row) -> float:
        return sum(theta[i] * (sum(moments[i][j] * theta[j] for j in range(3)) - 2 * cross[i]) for i in range(3))

    found = least_squares(moments, cross) or (0.0, 0.0, 0.0)
    assert min(found) >= 0
    dice = random.Random(0)
    for _ in range(50):
        other = (dice.choice([0, dice.random()]), dice.choice([0, dice.random()]), dice.choice([0, dice.random()]))
        assert objective(found) <= objective(other) + 1e-6


@pytest.mark.parametrize(("factor", "passes"), [(1 / 7, 1), (1 / 2, 1), (2, 2), (7, 2)])
def test_a_guess_is_given_up_after_the_first_passes(factor: float, passes: int) -> None:
    fit = prior((2.0, 0.1, 0.0), [(1.0, 64.0, 512.0), (1.0, 256.0, 8192.0)])
    for number in range(passes):
        row = (1.0, 100.0 + number, 900.0)
        fit = fit.learn(row, factor * (2.0 + 0.1 * row[1]))
    row = (1.0, 150.0, 2000.0)
    assert fit.predict(row) == pytest.approx(factor * 17.0, rel=0.1)


def test_a_first_pass_that_stalls_is_no_reason_to_give_the_guess_up() -> None:
    fit = prior((2.0, 0.1, 0.0), [(1.0, 64.0, 512.0), (1.0, 256.0, 8192.0)])
    row = (1.0, 100.0, 900.0)
    for factor in (20.0, 1.0):
        fit = fit.learn(row, factor * 12.0)
    assert fit.predict(row) == pytest.approx(12.0, rel=0.15)
