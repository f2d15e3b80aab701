from __future__ import annotations

import numpy as np
import pytest

from engine.tagging import Aggregation, Piece, is_bioes, kind_of, merged_neighbours, spans, trimmed
from engine.windows import Span

BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
BIOES = ("O", *(f"{prefix}-PER" for prefix in "BIES"))


def pieces(tags: tuple[str, ...], *said: str, joins: tuple[int, ...] = ()) -> list[Piece]:
    """One piece of three code points for each tag; its own tag scores 0.8."""
    made = []
    for place, tag in enumerate(said):
        scores = np.full(len(tags), 0.2 / (len(tags) - 1), dtype=np.float32)
        scores[tags.index(tag)] = 0.8
        made.append(Piece(3 * place, 3 * place + 3, scores, place in joins))
    return made


def found(
    tags: tuple[str, ...], *said: str, aggregation: Aggregation = "simple", joins: tuple[int, ...] = ()
) -> object:
    own = spans(pieces(tags, *said, joins=joins), tags, aggregation, bioes=is_bioes(tags))
    return [(span.label, span.start // 3, span.end // 3) for span in own]


def test_neighbours_of_one_label_are_one_unless_the_second_begins_anew() -> None:
    assert found(BIO, "B-PER", "I-PER", "O", "B-PER", "B-PER", "I-LOC") == [
        ("PER", 0, 2),
        ("PER", 3, 4),
        ("PER", 4, 5),
        ("LOC", 5, 6),
    ]


def test_plain_labels_need_no_prefix() -> None:
    assert found(("O", "PER", "LOC"), "PER", "PER", "LOC", "O", "LOC") == [("PER", 0, 2), ("LOC", 2, 3), ("LOC", 4, 5)]


def test_last_and_only_tokens_end_an_entity() -> None:
    assert found(BIOES, "B-PER", "I-PER", "E-PER", "S-PER", "S-PER", "B-PER", "E-PER") == [
        ("PER", 0, 3),
        ("PER", 3, 4),
        ("PER", 4, 5),
        ("PER", 5, 7),
    ]


def test_a_word_has_one_tag_when_asked_for() -> None:
    said = ("B-PER", "I-LOC", "O", "I-LOC")
    assert found(BIO, *said, joins=(1,)) == [("PER", 0, 1), ("LOC", 1, 2), ("LOC", 3, 4)]
    assert found(BIO, *said, joins=(1,), aggregation="first") == [("PER", 0, 2), ("LOC", 3, 4)]


@pytest.mark.parametrize(("aggregation", "label"), [("first", "PER"), ("max", "LOC"), ("average", "LOC")])
def test_words_are_settled_as_asked(aggregation: Aggregation, label: str) -> None:
    weak = Piece(0, 3, np.array([0.1, 0.5, 0.0, 0.4, 0.0], dtype=np.float32))
    strong = Piece(3, 6, np.array([0.0, 0.1, 0.0, 0.9, 0.0], dtype=np.float32), joins=True)
    (span,) = spans([weak, strong], BIO, aggregation, bioes=False)
    assert (span.label, span.start, span.end) == (label, 0, 6)


def test_a_label_may_have_a_hyphen_of_its_own() -> None:
    assert kind_of("B-credit-card") == "credit-card"
    assert kind_of("credit-card") == "credit-card"
    assert kind_of("O") == "O"


def test_white_space_at_the_ends_is_no_part_of_an_entity() -> None:
    text = " Paris  \u00a0"
    assert trimmed(text, [Span(0, 7, "LOC", 0.9), Span(6, 9, "LOC", 0.9)]) == [Span(1, 6, "LOC", 0.9)]


def test_only_neighbours_of_one_label_with_white_space_between_are_merged() -> None:
    text = "New  York, Paris"
    own = [Span(0, 3, "LOC", 0.9), Span(5, 9, "LOC", 0.7), Span(11, 16, "LOC", 0.8)]
    assert merged_neighbours(text, own) == [Span(0, 9, "LOC", 0.7), own[2]]
    assert merged_neighbours(text, [own[0], Span(5, 9, "ORG", 0.7)]) == [own[0], Span(5, 9, "ORG", 0.7)]
