"""A caller gets each text whole and once, whatever comes of its pieces."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.texts import Delta, Texts
from tasks.notices import Piece

JOB = UUID(int=1)


def piece(start: int, text: str, item: int = 0) -> Piece:
    return Piece(JOB, item, start, text)


def test_pieces_follow_one_another() -> None:
    texts = Texts()
    assert list(texts.more([piece(0, "one"), piece(3, " two")])) == [Delta(0, 0, "one"), Delta(0, 3, " two")]


def test_what_comes_twice_is_told_once() -> None:
    texts = Texts()
    assert list(texts.more([piece(0, "one"), piece(0, "one"), piece(0, "one two")])) == [
        Delta(0, 0, "one"),
        Delta(0, 3, " two"),
    ]


def test_behind_a_gap_nothing_is_told_until_it_is_closed() -> None:
    texts = Texts()
    assert list(texts.more([piece(3, " two")])) == []
    assert list(texts.more([piece(0, "one two three")])) == [Delta(0, 0, "one two three")]


def test_items_are_apart() -> None:
    texts = Texts()
    assert list(texts.more([piece(0, "a", 0), piece(0, "b", 1), piece(1, "c", 1)])) == [
        Delta(0, 0, "a"),
        Delta(1, 0, "b"),
        Delta(1, 1, "c"),
    ]


def test_the_result_brings_the_rest_and_items_without_text_none() -> None:
    texts = Texts()
    list(texts.more([piece(0, "one")]))
    assert list(texts.rest([{"text": "one two"}, {"error": {}}, {"text": "new"}])) == [
        Delta(0, 3, " two"),
        Delta(2, 0, "new"),
    ]


@given(st.text(min_size=1, max_size=60), st.lists(st.tuples(st.integers(0, 59), st.integers(1, 60)), max_size=20))
def test_whatever_is_lost_or_repeated_the_deltas_are_the_text(text: str, cuts: list[tuple[int, int]]) -> None:
    texts = Texts()
    pieces = [piece(start, text[start : start + size]) for start, size in cuts]
    deltas = [*texts.more(pieces), *texts.rest([{"text": text}])]
    assert "".join(delta.text for delta in deltas) == text


@pytest.mark.parametrize("start", [0, 5])
def test_an_empty_piece_tells_nothing(start: int) -> None:
    assert list(Texts().more([piece(start, "")])) == []
