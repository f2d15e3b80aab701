from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.bench.packing import deal, pack, padded, padding

lengths_of = st.lists(st.integers(min_value=1, max_value=512), max_size=200)
budgets = st.integers(min_value=1, max_value=4096)


@given(lengths_of, budgets)
def test_every_text_is_in_exactly_one_batch(lengths: list[int], budget: int) -> None:
    assert sorted(index for batch in pack(lengths, budget) for index in batch) == list(range(len(lengths)))


@given(lengths_of, budgets)
def test_no_batch_exceeds_the_budget_unless_one_text_does(lengths: list[int], budget: int) -> None:
    for batch in pack(lengths, budget):
        assert len(batch) == 1 or padded(lengths, [batch]) <= budget


@given(lengths_of, budgets)
def test_neighbours_in_length_share_batches(lengths: list[int], budget: int) -> None:
    order = [lengths[index] for batch in pack(lengths, budget) for index in batch]
    assert order == sorted(lengths)


def test_equal_lengths_need_no_padding() -> None:
    lengths = [10] * 20
    assert padding(sum(lengths), padded(lengths, pack(lengths, 100))) == 0.0


def test_padding_is_what_is_computed_beyond_the_real_tokens() -> None:
    assert padding(75, padded([50, 25], [[0, 1]])) == 0.25


def test_padding_of_nothing_is_zero() -> None:
    assert padding(0, 0) == 0.0


@given(lengths_of, st.integers(min_value=1, max_value=4))
def test_dealing_loses_no_batch_and_is_even(lengths: list[int], lanes: int) -> None:
    batches = pack(lengths, 256)
    dealt = deal(batches, lanes)
    assert sorted(batch for lane in dealt for batch in lane) == sorted(batches)
    sizes = [len(lane) for lane in dealt]
    assert max(sizes) - min(sizes) <= 1
