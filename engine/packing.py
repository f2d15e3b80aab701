"""What goes into an encoder: the texts of a batch as arrays, padded to the longest or packed one after another.

Packed, all texts lie in one row of tokens and nothing is padded. Positions start anew with each text, and texts of
equal length lie side by side, so that attention can take them together. Pure, numpy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import numpy as np
from numpy.typing import NDArray

from catalog.tokenizer import Tokens

Ids = NDArray[np.int64]

_LAID_OUT = 4
"""How many times as many tokens as a pass computes its result may be laid out for."""
_PADDING = 128
"""Tokens of padding that are cheaper than another pass."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a model wants its arrays. `first_position` is the number of a text's first position."""

    type_ids: bool
    pad_id: int = 0
    pad_type: int = 0
    pad_left: bool = False
    first_position: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbours of equal length in a packed row: `count` texts of `length` tokens each, from token `start` on."""

    start: int
    count: int
    length: int


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch in one row. `arrays` are of shape (1, tokens), `bounds` the texts' ends with a zero before them.

    Texts lie in order of their lengths: text `order[i]` of the batch is the i-th in the row.
    """

    arrays: dict[str, Ids]
    bounds: NDArray[np.int32]
    groups: tuple[Group, ...]
    order: tuple[int, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest text."""
        return self.groups[-1].length


def pack(rows: Sequence[Tokens], layout: Layout) -> Packed:
    """The texts one after another, the shortest first. There is at least one."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index].ids))
    lengths = [len(rows[index].ids) for index in order]
    bounds = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=bounds[1:])
    total = int(bounds[-1])
    texts = np.repeat(np.arange(len(rows)), lengths)
    arrays = {
        "input_ids": _flat([rows[index].ids for index in order], total),
        "position_ids": (np.arange(total) - bounds[texts] + layout.first_position)[None, :],
        "seq_idx": texts[None, :],
    }
    if layout.type_ids:
        arrays["token_type_ids"] = _flat([rows[index].type_ids for index in order], total)
    return Packed(arrays, bounds.astype(np.int32), _groups(lengths), tuple(order))


def pad(rows: Sequence[Tokens], layout: Layout) -> dict[str, Ids]:
    """The texts below each other, of shape (texts, longest), with a mask of what is text."""
    longest = max(len(row.ids) for row in rows)
    ids: Ids = np.full((len(rows), longest), layout.pad_id, dtype=np.int64)
    types: Ids = np.full_like(ids, layout.pad_type)
    mask: Ids = np.zeros_like(ids)
    for index, row in enumerate(rows):
        length = len(row.ids)
        place = slice(longest - length, None) if layout.pad_left else slice(length)
        ids[index, place], types[index, place], mask[index, place] = row.ids, row.type_ids, 1
    arrays = {"input_ids": ids, "attention_mask": mask}
    return arrays | {"token_type_ids": types} if layout.type_ids else arrays


def alike(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Rows in passes of like lengths: the places of each pass's rows, the longest first.

    A padded pass has at most `most` tokens, or one row, and little padding: no more than a quarter of it or a few
    tokens, whichever is more.
    """
    found: list[list[int]] = []
    longest = waste = 0
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        count = len(found[-1]) + 1 if found else 1
        waste += longest - lengths[place]
        if not found or count * longest > most or waste > max(_PADDING, count * longest // 4):
            found.append([])
            longest, waste = lengths[place], 0
        found[-1].append(place)
    return found


def together(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Rows in passes that pad nothing, of at most `most` tokens or one row: the places of each pass's rows.

    What is made of a pass may still be laid out as if it were padded, so that has a bound too, of some times as much.
    """
    found: list[list[int]] = []
    longest = total = 0
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        count = len(found[-1]) + 1 if found else 1
        total += lengths[place]
        if not found or total > most or count * longest > _LAID_OUT * most:
            found.append([])
            longest = total = lengths[place]
        found[-1].append(place)
    return found


def trial(template: Tokens, words: Sequence[int], lengths: Sequence[int]) -> list[Tokens]:
    """Texts of these lengths, each of other words, with the control tokens of a text that the tokenizer read."""
    first = template.ids[: template.first]
    last = template.ids[len(template.ids) - template.last :]
    made = []
    place = 0
    for length in lengths:
        size = max(1, length - len(first) - len(last))
        body = [words[(place + step * 7) % len(words)] for step in range(size)]
        place += size * 7 + 3
        ids = [*first, *body, *last]
        made.append(Tokens(ids, [0] * len(ids), len(first), len(last)))
    return made


def agree(padded: NDArray[np.float32], packed: NDArray[np.float32], most: float, cosine: float) -> bool:
    """Whether two ways of computing gave the same vectors.

    Once normalised, no value may differ by more than `most`, and no cosine be lower than `cosine`.
    """
    if padded.shape != packed.shape or not (np.isfinite(padded).all() and np.isfinite(packed).all()):
        return False
    one, other = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) for rows in (padded, packed))
    return bool(np.abs(one - other).max() <= most and (one * other).sum(axis=1).min() >= cosine)


def _flat(lists: Sequence[Sequence[int]], total: int) -> Ids:
    return np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=total)[None, :]


def _groups(lengths: Sequence[int]) -> tuple[Group, ...]:
    found: list[Group] = []
    start = 0
    for length, same in groupby(lengths):
        count = sum(1 for _ in same)
        found.append(Group(start, count, length))
        start += count * length
    return tuple(found)
