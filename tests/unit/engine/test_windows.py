from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.windows import Span, Window, cut, merge


def words(count: int) -> tuple[str, list[tuple[int, int]]]:
    """A text of so many words of two letters, with a blank at either end."""
    text = " " + " ".join(["ab"] * count) + " "
    return text, [(1 + 3 * i, 3 + 3 * i) for i in range(count)]


def spans_in(window: Window, spans: list[Span]) -> list[Span]:
    """What a perfect finder sees in a window: what is whole there, and pieces of what is not."""
    seen = []
    for span in spans:
        start, end = max(span.start, window.start), min(span.end, window.end)
        if start < end:
            seen.append(Span(start, end, span.label, span.score))
    return seen


def test_a_text_that_fits_is_one_window_with_its_blank_ends() -> None:
    text, offsets = words(10)
    (window,) = cut(offsets, len(text), 10, 3)
    assert (window.first, window.stop, window.start, window.end) == (0, 10, 0, len(text))
    assert not window.cut_start
    assert not window.cut_end


def test_a_text_without_units_is_one_window() -> None:
    (window,) = cut([], 4, 10, 3)
    assert (window.units, window.start, window.end) == (0, 0, 4)


@pytest.mark.parametrize(("most", "overlap"), [(3, 3), (3, -1), (0, 0)])
def test_windows_that_would_not_move_on_are_refused(most: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="cannot share"):
        cut([(0, 1)], 1, most, overlap)


@given(count=st.integers(0, 400), most=st.integers(2, 60), data=st.data())
def test_windows_cover_the_text_within_their_size_and_are_about_equal(
    count: int, most: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, most - 1))
    text, offsets = words(count)
    found = cut(offsets, len(text), most, overlap)
    assert all(window.units <= most for window in found)
    assert (found[0].first, found[-1].stop) == (0, count)
    for one, other in pairwise(found):
        assert one.stop - other.first == overlap
        assert one.own_end == other.own_start
        assert other.stop > one.stop
    assert len({window.units for window in found[:-1]}) <= 1


@given(starts=st.lists(st.tuples(st.integers(0, 195), st.integers(1, 5)), max_size=20))
def test_what_is_no_longer_than_the_overlap_is_found_whole_and_once(starts: list[tuple[int, int]]) -> None:
    text, offsets = words(200)
    spans: dict[int, Span] = {}
    for place, (first, size) in enumerate(starts):
        start, end = offsets[first][0], offsets[first + size - 1][1]
        if all(end <= other.start or other.end <= start for other in spans.values()):
            spans[place] = Span(start, end, f"label {place % 3}", 0.5 + place / 100)
    windows = cut(offsets, len(text), 20, 5)
    expected = sorted(spans.values(), key=lambda span: span.start)
    for flat in (True, False):
        assert merge(windows, [spans_in(window, expected) for window in windows], flat=flat) == expected


def test_what_is_longer_than_the_overlap_is_put_together() -> None:
    text, offsets = words(200)
    windows = cut(offsets, len(text), 20, 5)
    long = Span(windows[1].start - 9, windows[0].end + 9, "address", 0.9)
    assert merge(windows, [spans_in(window, [long]) for window in windows], flat=True) == [long]


def test_of_two_windows_that_differ_the_surer_is_believed_where_nothing_may_overlap() -> None:
    text, offsets = words(30)
    one, other = windows = cut(offsets, len(text), 20, 10)
    middle = int(one.own_end)
    weak, strong = Span(middle - 4, middle + 3, "a", 0.6), Span(middle - 2, middle + 6, "b", 0.8)
    assert other.own_start - middle < 1
    assert merge(windows, [[weak], [strong]], flat=True) == [strong]
    assert merge(windows, [[weak], [strong]], flat=False) == [weak, strong]


def test_one_window_keeps_nested_spans_of_its_own() -> None:
    text, offsets = words(5)
    nested = [Span(1, 9, "a", 0.9), Span(1, 3, "b", 0.8)]
    assert merge(cut(offsets, len(text), 20, 5), [nested], flat=True) == [nested[1], nested[0]]
