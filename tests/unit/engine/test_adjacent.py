from __future__ import annotations

from engine.adjacent import join_adjacent
from engine.windows import Span

TEXT = "Ada  Lovelace of London, London"


def span(start: int, end: int, label: str, score: float) -> Span:
    return Span(start, end, label, score)


def test_parts_of_a_name_become_one_with_the_lowest_score() -> None:
    found = join_adjacent(TEXT, [span(5, 13, "person", 0.6), span(0, 3, "person", 0.9)])
    assert found == [span(0, 13, "person", 0.6)]


def test_other_labels_and_anything_but_blanks_between_keep_entities_apart() -> None:
    apart = [
        span(0, 3, "person", 0.9),
        span(5, 13, "place", 0.6),
        span(17, 23, "place", 0.8),
        span(25, 31, "place", 0.7),
    ]
    assert join_adjacent(TEXT, apart) == apart


def test_an_entity_inside_another_is_left_alone() -> None:
    nested = [span(0, 13, "person", 0.9), span(5, 13, "person", 0.6)]
    assert join_adjacent(TEXT, nested) == nested
