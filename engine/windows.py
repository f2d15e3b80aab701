"""Long texts in windows: where a text of units (tokens, words) is cut, and what the whole has by what each window has.

Pure. Offsets are Unicode code points of the whole text.

In the overlap of two windows each decides its own half: what is found belongs to the window that has the middle of it.
So whatever is no longer than the overlap is whole in the window that it belongs to, and is found once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """Units `first` up to `stop` of a text, which are `text[start:end]`.

    It decides on what has its middle from `own_start` up to `own_end`. `cut_start` and `cut_end` say whether the text
    goes on beyond its ends.
    """

    first: int
    stop: int
    start: int
    end: int
    own_start: float
    own_end: float
    cut_start: bool
    cut_end: bool

    @property
    def units(self) -> int:
        """How many units it has."""
        return self.stop - self.first


@dataclass(frozen=True, slots=True)
class Span:
    """Something found in a text: `text[start:end]`."""

    start: int
    end: int
    label: str
    score: float


def cut(offsets: Sequence[tuple[int, int]], length: int, most: int, overlap: int) -> list[Window]:
    """Windows of at most `most` units over a text of `length` code points, all of about one size.

    `offsets` are each unit's start and end. Neighbours share `overlap` units. The first window begins with the text and
    the last ends with it, whatever lies outside the units there. A text without units is one window. Raises ValueError
    unless 0 <= overlap < most.
    """
    if not 0 <= overlap < most:
        raise ValueError(f"windows of {most} units cannot share {overlap}")
    units = len(offsets)
    count = max(1, -(-(units - overlap) // (most - overlap)))
    size = -(-(units + (count - 1) * overlap) // count)
    bounds = [(i * (size - overlap), min(units, i * (size - overlap) + size)) for i in range(count)]
    return bounded(offsets, length, bounds)


def bounded(offsets: Sequence[tuple[int, int]], length: int, bounds: Sequence[tuple[int, int]]) -> list[Window]:
    """The windows that have the units of `bounds`, each its first and the one after its last; in the text's order.

    The bounds cover all units, and each begins and ends after the one before.
    """
    starts = [0, *(offsets[first][0] for first, _ in bounds[1:])]
    ends = [*(offsets[stop - 1][1] for _, stop in bounds[:-1]), length]
    halves = [(start + end) / 2 for start, end in zip(starts[1:], ends[:-1], strict=True)]
    owned = zip([float("-inf"), *halves], [*halves, float("inf")], strict=True)
    return [
        Window(first, stop, start, end, own_start, own_end, index > 0, index < len(bounds) - 1)
        for index, ((first, stop), start, end, (own_start, own_end)) in enumerate(
            zip(bounds, starts, ends, owned, strict=True)
        )
    ]


def merge(windows: Sequence[Window], found: Sequence[Sequence[Span]], *, flat: bool) -> list[Span]:
    """What the whole text has, by what was found in each window; in order of their starts.

    A window keeps what it decides on. Two pieces of one label that reach the cut ends of neighbouring windows and
    overlap are one that is longer than the overlap: they become one span, with the higher score. With `flat`, of two
    others that overlap and come from two windows the one with the higher score stays.
    """
    if len(windows) == 1:
        return sorted(found[0], key=_place)
    kept: list[tuple[int, Span]] = []
    for index, (window, spans) in enumerate(zip(windows, found, strict=True)):
        for span in spans:
            if window.own_start <= (span.start + span.end) / 2 < window.own_end:
                _keep(windows, kept, index, span, flat=flat)
    return sorted((span for _, span in kept), key=_place)


def _keep(windows: Sequence[Window], kept: list[tuple[int, Span]], index: int, span: Span, *, flat: bool) -> None:
    for place in range(len(kept) - 1, -1, -1):
        other, before = kept[place]
        if other < index - 1:
            break
        if other == index or before.end <= span.start or span.end <= before.start:
            continue
        torn = before.end >= windows[other].end and span.start <= windows[index].start
        if torn and before.label == span.label:
            del kept[place]
            whole = Span(before.start, max(before.end, span.end), span.label, max(before.score, span.score))
            kept.append((index, whole))
            return
        if flat and before.score >= span.score:
            return
        if flat:
            del kept[place]
    kept.append((index, span))


def _place(span: Span) -> tuple[int, int]:
    return span.start, span.end
