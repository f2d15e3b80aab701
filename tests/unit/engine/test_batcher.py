from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catalog.schema import CostCoefficients
from engine.batcher import PADDING_SHARE, Bounds, Fill

FREE = CostCoefficients(base=0.0, per_token=0.0)
DEAR = CostCoefficients(base=5.0, per_token=0.22)


def test_a_batch_costs_its_base_and_every_padded_item() -> None:
    assert CostCoefficients(base=1.0, per_token=0.1, per_square=0.01).batch(3, 10) == 1.0 + 3 * (1.0 + 1.0)


def test_an_item_over_the_tokens_runs_alone() -> None:
    assert not Fill(2000, Bounds(8, 1024, DEAR)).open


def test_equal_lengths_join_up_to_the_padded_tokens() -> None:
    assert Fill(100, Bounds(256, 1024, DEAR)).joining(100) == 9


def test_equal_lengths_join_up_to_the_count() -> None:
    assert Fill(10, Bounds(4, 1024, DEAR)).joining(10) == 3


def test_any_lengths_share_a_batch_that_costs_nothing() -> None:
    fill = Fill(5, Bounds(256, 10**9, FREE))
    assert fill.joining(500) == 255
    assert fill.joining(1) == 255


def test_a_short_text_does_not_join_a_long_one_whose_padding_costs_more_than_a_batch() -> None:
    assert Fill(500, Bounds(256, 4096, DEAR)).joining(20) == 0


def test_a_short_text_joins_while_its_padding_costs_less_than_another_batch() -> None:
    fill = Fill(40, Bounds(256, 4096, DEAR))
    assert fill.joining(20) == 1


def test_a_long_text_does_not_join_many_short_ones() -> None:
    fill = Fill(20, Bounds(256, 4096, DEAR))
    fill.joined(20, 30)
    assert fill.joining(24) == 0
    assert fill.joining(20) == 173


_STEPS = st.lists(st.tuples(st.integers(1, 512), st.integers(0, 40)), max_size=12)


@given(st.integers(1, 512), _STEPS, st.integers(1, 64), st.integers(64, 4096), st.floats(0, 20), st.floats(0, 1))
def test_no_order_of_joining_passes_a_bound_or_wastes_more_than_a_batch(
    anchor: int, steps: list[tuple[int, int]], items: int, tokens: int, base: float, per_token: float
) -> None:
    cost = CostCoefficients(base=base, per_token=per_token)
    fill = Fill(anchor, Bounds(items, tokens, cost))
    lengths = [anchor]
    for length, wish in steps:
        joining = min(wish, fill.joining(length)) if fill.open else 0
        if joining:
            lengths += [length] * joining
            fill.joined(length, joining)
    assert fill.count == len(lengths)
    if len(lengths) > 1:
        longest = max(lengths)
        assert len(lengths) <= items
        assert len(lengths) * longest <= tokens
        waste = sum(cost.item(longest) - cost.item(length) for length in lengths)
        assert waste <= max(base, PADDING_SHARE * len(lengths) * cost.item(longest)) * (1 + 1e-9) + 1e-9


def test_any_lengths_share_a_batch_that_pads_nothing_up_to_its_tokens() -> None:
    fill = Fill(500, Bounds(256, 600, DEAR, padded=False))
    assert fill.joining(101) == 0
    assert fill.joining(20) == 5
    fill.joined(20, 4)
    assert fill.joining(20) == 1
    fill.joined(20, 1)
    assert not fill.open


def test_a_batch_that_pads_nothing_costs_its_own_tokens() -> None:
    bounds = Bounds(8, 100, DEAR, padded=False)
    assert (bounds.computed([10, 2]), bounds.cost_ms([10, 2])) == (12, 5.0 + 0.22 * 12)
    bounds = Bounds(8, 100, DEAR)
    assert (bounds.computed([10, 2]), bounds.cost_ms([10, 2])) == (20, 5.0 + 0.22 * 20)


@given(st.integers(1, 512), _STEPS, st.integers(1, 64), st.integers(64, 4096))
def test_without_padding_no_order_of_joining_passes_a_bound(
    anchor: int, steps: list[tuple[int, int]], items: int, tokens: int
) -> None:
    fill = Fill(anchor, Bounds(items, tokens, DEAR, padded=False))
    lengths = [anchor]
    for length, wish in steps:
        joining = min(wish, fill.joining(length)) if fill.open else 0
        if joining:
            lengths += [length] * joining
            fill.joined(length, joining)
    assert fill.count == len(lengths)
    assert len(lengths) == 1 or (len(lengths) <= items and sum(lengths) <= tokens)


def test_a_batch_can_be_bounded_by_what_it_takes() -> None:
    bounds = Bounds(256, 1024, DEAR, overhead_ms=1.0).within(72.0)
    assert bounds.tokens == 300
    assert bounds.cost_ms([100] * 3) + bounds.overhead_ms <= 72.0


def test_a_bound_on_time_never_makes_a_batch_larger() -> None:
    assert Bounds(256, 1024, DEAR).within(10_000.0).tokens == 1024


def test_one_item_runs_however_little_time_a_batch_may_take() -> None:
    assert Bounds(256, 1024, DEAR).within(0.0).tokens == 1


def test_a_batch_that_costs_nothing_is_not_bounded_by_time() -> None:
    assert Bounds(256, 1024, FREE).within(1.0).tokens == 1024
