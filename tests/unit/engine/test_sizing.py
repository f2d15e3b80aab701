"""The size of batches goes to where the device is quickest, and stays there."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.sizing import LADDER, Factors, Sizing, restored, restored_factors, sizing, step_of

Device = Callable[[float], float]


def device(best: int) -> Device:
    """What a token takes in a batch of some size: least at `best`, a twentieth more at half or twice of it."""
    return lambda tokens: 1 + 0.05 * math.log2(tokens / best) ** 2


def run(start: Sizing, cost: Device, passes: int, *, noise: float = 0.05, seed: int = 1) -> list[Sizing]:
    """As many passes, each as full as whole items allow."""
    dice = random.Random(seed)
    states = [start]
    for _ in range(passes):
        tokens = states[-1].tokens * dice.uniform(0.9, 1.0)
        states.append(states[-1].learn(tokens, cost(tokens) * math.exp(dice.gauss(0, noise))))
    return states


def size(state: Sizing) -> int:
    return LADDER[state.size]


@pytest.mark.parametrize("best", [256, 1000, 8192])
@pytest.mark.parametrize("start", [128, 1024, 16_384])
@pytest.mark.parametrize("seed", range(3))
def test_from_a_wrong_start_it_comes_to_the_quickest_size_and_stays(best: int, start: int, seed: int) -> None:
    states = run(sizing(start), device(best), 600, seed=seed)
    for state in states[300:]:
        assert device(best)(size(state)) < 1.06
    # Larger batches than the best are worth nothing, whatever they cost in waiting.
    assert size(states[-1]) <= 2 * best


@pytest.mark.parametrize("seed", range(5))
def test_where_size_makes_no_difference_batches_do_not_grow(seed: int) -> None:
    assert max(size(state) for state in run(sizing(1024), lambda _: 1.0, 2000, seed=seed)) == 1024


def test_a_gain_of_less_than_three_percent_makes_no_larger_batch() -> None:
    states = run(sizing(1024), lambda tokens: 1 if tokens > 1100 else 1.02, 2000, noise=0.01)
    assert size(states[-1]) <= 1024


def test_a_gain_of_more_does() -> None:
    states = run(sizing(1024), lambda tokens: 1 if tokens > 1100 else 1.06, 300, noise=0.01)
    assert size(states[-1]) > 1024


def test_a_device_that_slows_down_moves_nothing() -> None:
    states = run(sizing(1024), device(1024), 300, noise=0.02)
    slower = run(states[-1], lambda tokens: 3 * device(1024)(tokens), 300, noise=0.02)
    assert {size(state) for state in slower} == {1024}


@pytest.mark.parametrize("seed", range(5))
def test_a_machine_with_other_things_to_do_moves_nothing(seed: int) -> None:
    """Half as fast for some passes, twice as fast for others, and so for a while each time."""
    dice, load, state = random.Random(seed), 0.0, sizing(1024)
    for _ in range(1000):
        load = 0.95 * load + dice.gauss(0, 0.12)
        tokens = state.tokens * dice.uniform(0.9, 1.0)
        state = state.learn(tokens, device(1024)(tokens) * math.exp(load))
        assert 512 <= size(state) <= 2048


def test_tries_of_other_sizes_become_rare() -> None:
    states = run(sizing(1024), device(1024), 1500, noise=0.03)
    late = states[1000:]
    assert sum(state.trying is not None for state in late) < 0.12 * len(late)
    assert any(state.trying is not None for state in late)


def test_without_enough_work_for_full_batches_nothing_is_tried() -> None:
    state = sizing(1024)
    for _ in range(500):
        state = state.learn(200, 1.0)
        assert state.trying is None
    assert size(state) == 1024


def test_a_try_ends_although_too_little_work_waits_for_it() -> None:
    state = sizing(1024)
    while state.trying is None:
        state = state.learn(state.tokens, 1.0)
    for _ in range(4):
        state = state.learn(50, 1.0)
    assert state.trying is None


@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=100))
def test_whatever_comes_the_size_stays_on_the_ladder(passes: list[tuple[float, float]]) -> None:
    state = sizing(300)
    for tokens, unit in passes:
        state = state.learn(tokens, unit)
        assert state.tokens in LADDER
    assert restored(orjson.loads(orjson.dumps(state.state()))).size == state.size


@pytest.mark.parametrize("state", [[-1, 4], [99, 4], [3, 1000], [3]])
def test_a_state_that_is_none_is_refused(state: list[float]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - one is not even two numbers
        restored(state)


@pytest.mark.parametrize(
    ("tokens", "near"), [(0, 1), (1, 1), (5.2, 6), (130, 128), (170, 192), (1000, 1024), (1200, 1024), (1e9, 32_768)]
)
def test_a_size_belongs_to_the_nearest_step(tokens: float, near: int) -> None:
    assert LADDER[step_of(tokens)] == near


def test_factors_learn_what_sizes_add() -> None:
    factors = Factors()
    for _ in range(100):
        factors = factors.learn(1024, 1.0).learn(4096, 1.5)
    assert factors.of(1024) == pytest.approx(1.0)
    assert factors.of(4096) == pytest.approx(1.5, rel=0.05)
    assert 1.1 < factors.of(2048) < 1.4
    assert factors.of(32_000) == factors.of(4096)
    assert factors.of(100) == factors.of(1024)


def test_factors_of_few_passes_count_for_little() -> None:
    assert Factors().learn(1024, 2.0).of(1024) < 1.2
    assert Factors().of(1024) == 1.0


@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=50))
def test_whatever_comes_factors_stay_finite(passes: list[tuple[float, float]]) -> None:
    factors = Factors()
    for tokens, ratio in passes:
        factors = factors.learn(tokens, ratio)
    assert all(0.3 < factors.of(tokens) < 3.1 for tokens in (1, 100, 1e4, 1e6))
    assert restored_factors(orjson.loads(orjson.dumps(factors.state()))) == factors


@pytest.mark.parametrize("item", [1, 5, 20, 300])
@pytest.mark.parametrize("best", [1, 4, 16])
@pytest.mark.parametrize("seed", range(3))
def test_where_items_are_long_the_quickest_number_of_them_is_found(item: int, best: int, seed: int) -> None:
    """Documents of so many pages each, by as many as go into the size."""
    dice, state = random.Random(seed), sizing(4)
    counts = []
    for _ in range(800):
        count = max(1, state.tokens // item)
        counts.append(count)
        cost = (1 + 0.05 * math.log2(count / best) ** 2) * math.exp(dice.gauss(0, 0.03))
        state = state.learn(count * item, cost, item)
    assert 0.5 <= sum(counts[500:]) / 300 / best <= 2
