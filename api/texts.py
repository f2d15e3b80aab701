"""Putting texts together from pieces that may come twice, late or not at all. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.notices import Piece


@dataclass(frozen=True, slots=True)
class Delta:
    """What comes next of an item's text; it begins at character `start`."""

    item: int
    start: int
    text: str


class Texts:
    """How much of each item's text one caller has had. What it gives has no gaps and repeats nothing."""

    def __init__(self) -> None:
        self._had: dict[int, int] = {}

    def more(self, pieces: Sequence[Piece]) -> Iterator[Delta]:
        """What is new in these. A piece behind a gap waits for one that closes it."""
        for piece in pieces:
            yield from self._new(piece.item, piece.start, piece.text)

    def rest(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[Delta]:
        """What was not told of the texts in a job's result."""
        for item, row in enumerate(rows):
            if isinstance(text := row.get("text"), str):
                yield from self._new(item, 0, text)

    def _new(self, item: int, start: int, text: str) -> Iterator[Delta]:
        had = self._had.get(item, 0)
        if start <= had < start + len(text):
            self._had[item] = start + len(text)
            yield Delta(item, had, text[had - start :])
