"""The batches that a perfect scheduler would form if it saw all texts at once. Pure.

Sorted by length, neighbours packed while the padded size (count x longest) stays inside a budget. This is the limit
that the service is compared with.
"""

from __future__ import annotations

import random
from collections.abc import Sequence


def pack(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of the texts of each batch, short batches first. A text longer than the budget is a batch of its own."""
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    batches: list[list[int]] = []
    current: list[int] = []
    for index in order:
        if current and (len(current) + 1) * lengths[index] > budget:
            batches.append(current)
            current = []
        current.append(index)
    if current:
        batches.append(current)
    return batches


def padded(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> int:
    """Tokens that are computed when each batch is padded to its longest text."""
    return sum(len(batch) * max(lengths[index] for index in batch) for batch in batches if batch)


def padding(real: int, computed: int) -> float:
    """The share of the computed tokens that is padding; 0 when nothing was computed."""
    return 1 - real / computed if computed else 0.0


def deal(batches: Sequence[Sequence[int]], lanes: int, seed: int = 1) -> list[list[list[int]]]:
    """The batches shuffled and dealt to lanes like cards, so that a part of any lane has the mix of the whole."""
    deck = [list(batch) for batch in batches]
    random.Random(seed).shuffle(deck)
    return [deck[lane::lanes] for lane in range(lanes)]
