"""A table out of what a structure model writes: cells of a grid from its tags, and the words that stand in them. Pure.

A box is (left, top, right, bottom), whatever the unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Box = tuple[float, float, float, float]

_SPAN = re.compile(r'(col|row)span="(\d{1,3})"')
MOST_SPAN = 200


@dataclass(frozen=True, slots=True)
class GridCell:
    """A cell: where it begins, how many rows and columns it takes, whether it heads a column, and its box."""

    row: int
    column: int
    rows: int
    columns: int
    header: bool
    box: Box


def cells_of(tags: Sequence[str], boxes: Sequence[Box]) -> list[GridCell]:
    """The cells that HTML tags describe, one box for each in their order; a cell without a box is at the origin.

    A span in an earlier row pushes later cells to the right. The first row heads the columns if no `<thead>` does.
    """
    found: list[GridCell] = []
    taken: set[tuple[int, int]] = set()
    row, head, any_head = -1, False, "<thead>" in tags
    place = 0
    while place < len(tags):
        tag = tags[place]
        place += 1
        if tag in ("<thead>", "</thead>"):
            head = tag == "<thead>"
        elif tag == "<tr>":
            row += 1
        elif tag.startswith("<td"):
            spans = {"row": 1, "col": 1}
            while ">" not in tag and place < len(tags):
                tag = tags[place]
                place += 1
                for kind, count in _SPAN.findall(tag):
                    spans[kind] = min(max(1, int(count)), MOST_SPAN)
            column = 0
            while (max(row, 0), column) in taken:
                column += 1
            for down in range(spans["row"]):
                taken.update((max(row, 0) + down, column + right) for right in range(spans["col"]))
            box = boxes[len(found)] if len(found) < len(boxes) else (0.0, 0.0, 0.0, 0.0)
            header = head if any_head else row <= 0
            found.append(GridCell(max(row, 0), column, spans["row"], spans["col"], header, box))
    return found


def fill(cells: Sequence[GridCell], words: Iterable[tuple[str, Box]]) -> list[str]:
    """The text of each cell: every word goes to the cell that its middle is nearest to, in the order of the words.

    Distance down counts twice: lines of a table are closer than its columns.
    """
    texts: list[list[str]] = [[] for _ in cells]
    for word, (left, top, right, bottom) in words:
        across, down = (left + right) / 2, (top + bottom) / 2
        nearest = min(range(len(cells)), key=lambda i: _distance(cells[i].box, across, down), default=None)
        if nearest is not None:
            texts[nearest].append(word)
    return [" ".join(part).strip() for part in texts]


def _distance(box: Box, across: float, down: float) -> float:
    left, top, right, bottom = box
    return float(max(left - across, 0.0, across - right) ** 2 + (2 * max(top - down, 0.0, down - bottom)) ** 2)
