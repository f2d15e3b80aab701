"""Which pages are read."""

from __future__ import annotations

import pytest

from engine.documents.errors import Empty, TooLarge, WrongPages
from engine.documents.pages import Pdf, check_drawn, choose, has_text, parse_ranges


def test_ranges_are_sorted_and_joined() -> None:
    assert parse_ranges("7, 1-3") == [(1, 3), (7, 7)]
    assert parse_ranges("4-6,2-3,5-9") == [(2, 9)]
    for wrong in ("0", "5-2"):
        with pytest.raises(WrongPages):
            parse_ranges(wrong)


def test_what_is_chosen_must_be_there_and_not_be_too_much() -> None:
    assert choose(None, 3, 100) == [(1, 3)]
    assert choose("200-201", 300, 100) == [(200, 201)]
    with pytest.raises(WrongPages, match="has 3 pages"):
        choose("3-4", 3, 100)
    with pytest.raises(TooLarge, match=r"101 pages .* options\.pages"):
        choose(None, 101, 100)
    with pytest.raises(Empty):
        choose(None, 0, 100)


def test_a_page_of_some_metres_is_not_drawn_unless_it_is_left_out() -> None:
    pdf = Pdf((0, 0), whole=True, sizes=((612, 792), (8400, 8400)))
    check_drawn(pdf, [(1, 1)])
    with pytest.raises(TooLarge, match="Page 2 measures 117 by 117 inches"):
        check_drawn(pdf, [(1, 2)])


def test_only_the_chosen_pages_are_asked_for_their_text() -> None:
    assert has_text(Pdf((0, 5, 0, 9), whole=True), [(2, 3)]) == [True, False]
