"""From a tag for each token to spans of a text, as the token-classification pipeline of transformers groups them. Pure.

Tags are of a scheme: plain labels (IO), `B-`/`I-` (BIO), or those with `E-` and `S-` for the last and the only token
(BIOES; also called BILOU, with `L-` and `U-`). The pipeline itself knows no BIOES and tears such entities apart, and of
a plain label with a hyphen it keeps what is behind that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from engine.windows import Span

Aggregation = Literal["simple", "first", "average", "max"]

OUTSIDE = "O"
_LAST, _ONLY = ("E-", "L-"), ("S-", "U-")
_PREFIXES = ("B-", "I-", *_LAST, *_ONLY)


@dataclass(frozen=True, slots=True)
class Piece:
    """A token, or a word made of some: `text[start:end]`, with the score of each tag. `joins` goes on with a word."""

    start: int
    end: int
    scores: NDArray[np.float32]
    joins: bool = False


def kind_of(tag: str) -> str:
    """The label of a tag, without the prefix of its scheme."""
    return tag[2:] if tag.startswith(_PREFIXES) else tag


def is_bioes(tags: Collection[str]) -> bool:
    """Whether the tags mark last and only tokens."""
    return any(tag.startswith(_LAST + _ONLY) for tag in tags) and any(tag.startswith("B-") for tag in tags)


def spans(pieces: Sequence[Piece], tags: Sequence[str], aggregation: Aggregation, *, bioes: bool) -> list[Span]:
    """The entities of a text in order of their starts. A score is the mean of the tokens', or of the words'."""
    units = pieces if aggregation == "simple" else _words(pieces, aggregation)
    groups: list[list[tuple[str, float, Piece]]] = []
    for piece in units:
        best = int(piece.scores.argmax())
        own = (tags[best], float(piece.scores[best]), piece)
        if groups and _goes_on(groups[-1][-1][0], own[0], bioes=bioes):
            groups[-1].append(own)
        else:
            groups.append([own])
    return [
        Span(
            group[0][2].start,
            group[-1][2].end,
            kind_of(group[0][0]),
            float(np.mean([score for _, score, _ in group])),
        )
        for group in groups
        if kind_of(group[0][0]) != OUTSIDE
    ]


def trimmed(text: str, found: Sequence[Span]) -> list[Span]:
    """Spans without white space at their ends, which some tokenizers count to a word; those of nothing else go.

    The pipeline leaves it in.
    """
    out = []
    for span in found:
        piece = text[span.start : span.end]
        start = span.start + len(piece) - len(piece.lstrip())
        if piece.strip():
            out.append(Span(start, start + len(piece.strip()), span.label, span.score))
    return out


def merged_neighbours(text: str, found: Sequence[Span]) -> list[Span]:
    """Spans of one label with nothing but white space between them as one, with the lower of their scores."""
    out: list[Span] = []
    for span in found:
        last = out[-1] if out else None
        if (
            last is not None
            and last.label == span.label
            and last.end <= span.start
            and not text[last.end : span.start].strip()
        ):
            out[-1] = Span(last.start, span.end, span.label, min(last.score, span.score))
        else:
            out.append(span)
    return out


def _goes_on(before: str, tag: str, *, bioes: bool) -> bool:
    if bioes:
        ended = before.startswith(_LAST + _ONLY)
        begins = tag.startswith(("B-", *_ONLY))
        return kind_of(before) == kind_of(tag) and not ended and not begins
    return _inside(before) == _inside(tag) and not tag.startswith("B-")


def _inside(tag: str) -> str:
    """The label of a BIO tag; any other is its own label."""
    return tag[2:] if tag.startswith(("B-", "I-")) else tag


def _words(pieces: Sequence[Piece], aggregation: Aggregation) -> list[Piece]:
    words: list[list[Piece]] = []
    for piece in pieces:
        if words and piece.joins:
            words[-1].append(piece)
        else:
            words.append([piece])
    return [Piece(word[0].start, word[-1].end, _of_word(word, aggregation)) for word in words]


def _of_word(word: Sequence[Piece], aggregation: Aggregation) -> NDArray[np.float32]:
    if aggregation == "first":
        return word[0].scores
    if aggregation == "max":
        return max(word, key=lambda piece: float(piece.scores.max())).scores
    return np.asarray(np.mean([piece.scores for piece in word], axis=0), dtype=np.float32)
