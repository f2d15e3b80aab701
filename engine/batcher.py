"""How large a batch may be and who may join it. Pure: no clock, no lock, no device.

A batch is formed around one item, the anchor (see `engine.backlog`). Padding may waste no more than one more batch
would have cost, or a small share of the batch: on a CPU, where compute is the limit, padding short texts to a long
neighbour loses to no batching at all. A model that pads nothing wastes nothing: any lengths share its batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from catalog.schema import CostCoefficients

PADDING_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a batch of one model may be now. An item that is over `tokens` by itself still runs, alone.

    `tokens` counts what is computed: items times the longest where the model pads (`padded`), the items' own lengths
    where it does not. `overhead_ms` is what a batch costs besides the device.
    """

    items: int
    tokens: int
    cost: CostCoefficients
    overhead_ms: float = 0.0
    padded: bool = True

    def computed(self, lengths: Sequence[int]) -> int:
        """The tokens that a batch of these lengths computes."""
        return len(lengths) * max(lengths) if self.padded else sum(lengths)

    def cost_ms(self, lengths: Sequence[int]) -> float:
        """What a batch of these lengths is predicted to take on the device."""
        return self.cost.batch(len(lengths), max(lengths)) if self.padded else self.cost.packed(lengths)

    def shares(self, lengths: Sequence[int]) -> tuple[float, ...]:
        """What part of a batch of these lengths each item is; padding is everybody's."""
        each = {length: self.cost.item(length) for length in set(lengths)}
        total = sum(map(each.__getitem__, lengths))
        if total <= 0:
            return (1.0 / len(lengths),) * len(lengths)
        return tuple([each[length] / total for length in lengths])

    def within(self, most_ms: float, length: int = 1) -> Bounds:
        """These bounds for batches of items of about this length that take no longer; one item runs, however long.

        A running batch is not interrupted, so what may come while it runs waits for as long as it was allowed to take.
        """
        each = self.cost.item(length)
        if each <= 0:
            return self
        # A little more than what fits is what fits, as floating point has it.
        items = int((most_ms - self.cost.base - self.overhead_ms) / each + 1e-9)
        return replace(self, tokens=max(1, min(self.tokens, items * length)))


class Fill:
    """How full one batch is, and how many items of a length may still join it. It begins with one item."""

    __slots__ = ("bounds", "count", "longest", "open", "slack", "tokens", "unit", "waste")

    def __init__(self, longest: int, bounds: Bounds) -> None:
        self.bounds = bounds
        self.count = 1
        self.longest = longest
        self.tokens = longest
        self.unit = bounds.cost.item(longest)
        self.waste = 0.0
        self.slack = bounds.cost.base + bounds.overhead_ms
        self.open = bounds.items > 1 and (2 * longest <= bounds.tokens if bounds.padded else longest < bounds.tokens)

    def joining(self, length: int) -> int:
        """How many items of `length` may join, by count, tokens and waste."""
        if not self.bounds.padded:
            return max(0, min(self.bounds.items - self.count, (self.bounds.tokens - self.tokens) // length))
        longest = max(length, self.longest)
        room = min(self.bounds.items, self.bounds.tokens // longest) - self.count
        if room <= 0:
            return 0
        if length >= self.longest:
            unit = self.bounds.cost.item(length)
            waste = self.waste + self.count * (unit - self.unit)
            return room if waste <= max(self.slack, PADDING_SHARE * (self.count + 1) * unit) else 0
        return min(room, self._affordable(self.unit - self.bounds.cost.item(length)))

    def joined(self, length: int, count: int) -> None:
        """Note that `count` items of `length` have joined."""
        self.tokens += count * length
        if not self.bounds.padded:
            self.count += count
            self.open = self.count < self.bounds.items and self.tokens < self.bounds.tokens
            return
        if length > self.longest:
            unit = self.bounds.cost.item(length)
            self.waste += self.count * (unit - self.unit)
            self.longest, self.unit = length, unit
        elif length < self.longest:
            self.waste += count * (self.unit - self.bounds.cost.item(length))
        self.count += count
        self.open = self.count < self.bounds.items and (self.count + 1) * self.longest <= self.bounds.tokens

    def _affordable(self, waste_each: float) -> int:
        """How many items that waste this much each keep the sum under the slack or under the share of the batch."""
        if waste_each <= 0:
            return self.bounds.items
        by_slack = (self.slack - self.waste) / waste_each
        share = PADDING_SHARE * self.unit
        spare = share * self.count - self.waste
        if waste_each <= share:
            by_share = float(self.bounds.items) if spare >= 0 else 0.0
        else:
            by_share = spare / (waste_each - share)
        return max(0, int(min(self.bounds.items, max(by_slack, by_share))))
