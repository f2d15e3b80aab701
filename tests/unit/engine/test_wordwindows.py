from __future__ import annotations

import pytest

from engine.wordwindows import Words, cut_words, share


def words(pieces: list[int]) -> Words:
    return Words(tuple((i * 4, i * 4 + 3) for i in range(len(pieces))), tuple(pieces))


def test_a_short_text_is_one_window_that_holds_all_of_it() -> None:
    found = cut_words(words([1, 1, 2]), 20, most_words=3, most_pieces=4, overlap=2)
    assert [(one.start, one.end) for one in found.windows] == [(0, 20)]
    assert not found.truncated


@pytest.mark.parametrize("most_pieces", [5, 17, 40, 1000])
def test_no_window_has_more_words_or_pieces_than_fit_and_every_word_is_in_one(most_pieces: int) -> None:
    text = words([1 + (i * 7) % 5 for i in range(100)])
    found = cut_words(text, 400, most_words=30, most_pieces=most_pieces, overlap=6)
    assert all(window.units <= 30 for window in found.windows)
    assert all(sum(text.pieces[window.first : window.stop]) <= most_pieces for window in found.windows)
    assert {i for window in found.windows for i in range(window.first, window.stop)} == set(range(100))
    assert not found.truncated


def test_a_word_too_long_for_any_window_is_said_and_costs_the_others_nothing() -> None:
    found = cut_words(words([1] * 10 + [50] + [1] * 10), 84, most_words=10, most_pieces=10, overlap=2)
    assert found.truncated
    assert [(window.first, window.stop) for window in found.windows] == [(0, 10), (10, 11), (11, 21)]


def test_windows_that_hold_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="hold nothing"):
        cut_words(words([1]), 3, most_words=10, most_pieces=0, overlap=0)


def test_passes_hold_rows_of_like_lengths_and_no_more_than_fits() -> None:
    lengths = [3, 10, 2, 9, 1, 30]
    passes = share(lengths, 20)
    assert sorted(place for one in passes for place in one) == list(range(6))
    assert passes == [[5], [1, 3], [0, 2, 4]]


def test_what_is_around_rows_counts_as_their_own_length_does() -> None:
    lengths, around = [3, 10, 3, 9], [50, 2, 52, 2]
    assert share(lengths, 110, around) == [[2, 0], [1, 3]]
    assert share(lengths, 109, around) == [[2], [0, 1], [3]]
    assert share(lengths, 20, around) == [[2], [0], [1], [3]]


def test_no_rows_take_no_pass() -> None:
    assert share([], 20) == []
