"""Texts as words for models that read words: windows that fit a model, and rows of windows in passes that fit memory.

Pure. A piece is what a model's tokenizer makes of a part of a word.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from engine.windows import Window, bounded, cut


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a text: where each is, in code points, and how many pieces it has."""

    offsets: tuple[tuple[int, int], ...]
    pieces: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """Windows over a text. `truncated` where one word alone has more pieces than a window may have."""

    windows: tuple[Window, ...]
    truncated: bool


def cut_words(words: Words, length: int, *, most_words: int, most_pieces: int, overlap: int) -> Cut:
    """Windows over a text of `length` code points, none of more words or pieces than that.

    Neighbours share up to `overlap` words, at most half a window. They are all of about one size unless some would have
    too many pieces. Raises ValueError if nothing may be in a window.
    """
    if most_words < 1 or most_pieces < 1:
        raise ValueError(f"windows of {most_words} words and {most_pieces} pieces hold nothing")
    before = [0, *accumulate(words.pieces)]
    windows = cut(words.offsets, length, most_words, min(overlap, most_words // 2))
    if all(before[window.stop] - before[window.first] <= most_pieces for window in windows):
        return Cut(tuple(windows), truncated=False)
    bounds = [(0, _reach(before, 0, most_words, most_pieces))]
    while bounds[-1][1] < len(words.offsets):
        first, stop = bounds[-1]
        start = stop - min(overlap, (stop - first) // 2)
        while (reach := _reach(before, start, most_words, most_pieces)) <= stop:
            start += 1  # what is shared leaves no room for the next word
        bounds.append((start, reach))
    return Cut(tuple(bounded(words.offsets, length, bounds)), max(words.pieces) > most_pieces)


def _reach(before: Sequence[int], first: int, most_words: int, most_pieces: int) -> int:
    """Where the longest window that begins with the word `first` ends; it has that word whatever its pieces."""
    last = min(first + most_words, len(before) - 1)
    return max(first + 1, bisect_right(before, before[first] + most_pieces, first, last + 1) - 1)


def share(lengths: Sequence[int], most: int, around: Sequence[int] | None = None) -> list[list[int]]:
    """Rows in passes, by their places: each pass has rows of like lengths and at most `most` units, padding included.

    A row that is longer than `most` has a pass of its own. `around` is what each row has besides, such as labels: it
    takes memory as the text does, so it counts. What is lent for a batch is lent for its texts alone, so that families
    give at least the model's whole length as `most`, for which there must be room anyway: short texts share a pass.
    """
    whole = list(lengths) if around is None else [sum(pair) for pair in zip(lengths, around, strict=True)]
    passes: list[list[int]] = []
    widest = 0
    for place in sorted(range(len(whole)), key=lambda place: -whole[place]):
        # The first row of a pass is its longest.
        if not passes or widest * (len(passes[-1]) + 1) > most:
            passes.append([])
            widest = whole[place]
        passes[-1].append(place)
    return passes
