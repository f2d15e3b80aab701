from __future__ import annotations

import pytest

from tests.bench.figures import Reading, at_least, at_most, latency, percentile, rows_of


def test_percentile_is_a_sample_that_was_measured() -> None:
    assert percentile([1.0, 2.0, 3.0, 10.0], 50) == 2.0
    assert percentile([1.0, 2.0, 3.0, 10.0], 99) == 10.0


def test_percentile_of_a_hundred_leaves_one_above_p99() -> None:
    assert percentile([float(n) for n in range(1, 101)], 99) == 99.0


def test_percentile_does_not_depend_on_the_order() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0


def test_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 50)


def test_latency_of_nothing_gives_no_reading() -> None:
    assert latency("wait", []) == []


def test_rounds_become_a_median_with_its_spread() -> None:
    rounds = [[Reading("rate", value, "/s")] for value in (5.0, 1.0, 3.0)]
    (row,) = rows_of("case", rounds)
    assert (row.median, row.low, row.high, row.rounds) == (3.0, 1.0, 5.0, 3)


def test_rows_keep_the_order_in_which_figures_appeared() -> None:
    rounds = [[Reading("b", 1, "")], [Reading("b", 1, ""), Reading("a", 1, "")]]
    rows = rows_of("case", rounds)
    assert [(row.what, row.rounds) for row in rows] == [("b", 2), ("a", 1)]


@pytest.mark.parametrize(("value", "reached"), [(9.9, False), (10.0, True), (10.1, True)])
def test_a_lower_bound_counts_as_reached_at_the_bound(value: float, *, reached: bool) -> None:
    assert at_least(10).reached(value) is reached


@pytest.mark.parametrize(("value", "reached"), [(9.9, True), (10.0, True), (10.1, False)])
def test_an_upper_bound_counts_as_reached_at_the_bound(value: float, *, reached: bool) -> None:
    assert at_most(10).reached(value) is reached


def test_the_median_decides_whether_a_target_is_reached() -> None:
    rounds = [[Reading("rate", value, "/s", at_least(10))] for value in (1.0, 11.0, 12.0)]
    assert rows_of("case", rounds)[0].reached is True


def test_a_figure_without_a_target_is_neither_reached_nor_missed() -> None:
    assert rows_of("case", [[Reading("rate", 1.0, "/s")]])[0].reached is None
