"""Which waiting items run together. Pure: no clock, no lock, no device.

A batch is formed around one item, the anchor. Items of its own length join first, then those of the nearest lengths,
the most urgent of each length first, until a bound is met. Padding may waste no more than one more batch would have
cost, or a small share of the batch: on a CPU, where compute is the limit, padding short texts to a long neighbour
loses to no batching at all.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from catalog.terms import Lane, Verb
from engine.types import Entry

PADDING_SHARE = 0.03
_SPARE = 1024


@dataclass(frozen=True, slots=True)
class BatchCost:
    """Milliseconds of a batch of n items padded to length L: `base + n · (per_token · L + per_square · L²)`."""

    base: float = 0.0
    per_token: float = 0.0
    per_square: float = 0.0

    def item(self, length: int) -> float:
        """What one item padded to `length` adds to a batch."""
        return length * (self.per_token + self.per_square * length)

    def batch(self, count: int, length: int) -> float:
        """The whole of a batch of `count` items padded to `length`."""
        return self.base + count * self.item(length)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a batch of one model may be now. An item that is over `tokens` by itself still runs, alone.

    `tokens` counts padded ones: items times the longest. `overhead_ms` is what a batch costs besides the device.
    """

    items: int
    tokens: int
    cost: BatchCost
    overhead_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Kind:
    """What keeps items out of each other's batches. `group` stands for options that must not mix."""

    model: str
    verb: Verb
    lane: Lane
    group: Hashable = None
    alone: bool = False


class Ticket:
    """One waiting item. `tag` says how urgent it is (least first), `gone` that it was taken or dropped."""

    __slots__ = ("entry", "gone", "length", "seq", "tag")

    def __init__(self, entry: Entry, length: int, tag: float, seq: int) -> None:
        self.entry = entry
        self.length = length
        self.tag = tag
        self.seq = seq
        self.gone = False


_Filed = tuple[float, int, Ticket]


class Backlog:
    """The waiting items of one kind: those that may run in one batch.

    Filed three times, by urgency, by arrival and by length, so that nothing is scanned or sorted for a batch. A ticket
    that leaves one file is only marked as gone and is passed over in the others.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.waiting = 0
        self._urgent: list[_Filed] = []
        self._arrivals: deque[Ticket] = deque()
        self._lengths: list[int] = []
        self._by_length: dict[int, list[_Filed]] = {}
        self._filed = 0

    def add(self, ticket: Ticket) -> None:
        """File a ticket."""
        filed = (ticket.tag, ticket.seq, ticket)
        heappush(self._urgent, filed)
        self._arrivals.append(ticket)
        same = self._by_length.get(ticket.length)
        if same is None:
            self._by_length[ticket.length] = [filed]
            insort(self._lengths, ticket.length)
        else:
            heappush(same, filed)
        self.waiting += 1
        self._filed += 1
        if len(self._urgent) + len(self._arrivals) + self._filed > 6 * self.waiting + _SPARE:
            self._refile()

    def drop(self, ticket: Ticket) -> None:
        """Take a ticket out of all files, without running it."""
        if not ticket.gone:
            ticket.gone = True
            self.waiting -= 1

    def head(self) -> Ticket | None:
        """The most urgent ticket."""
        urgent = self._urgent
        while urgent and urgent[0][2].gone:
            heappop(urgent)
        return urgent[0][2] if urgent else None

    def oldest(self) -> Ticket | None:
        """The ticket that has waited longest."""
        arrivals = self._arrivals
        while arrivals and arrivals[0].gone:
            arrivals.popleft()
        return arrivals[0] if arrivals else None

    def take(self, anchor: Ticket, bounds: Bounds) -> list[Ticket]:
        """The tickets of one batch around `anchor`, which comes first. They are gone from here on."""
        anchor.gone = True
        taken, emptied = [anchor], []
        fill = _Fill(anchor.length, bounds)
        lengths, centre = self._lengths, anchor.length
        above = bisect_left(lengths, centre)
        below = above - 1
        while fill.open and (below >= 0 or above < len(lengths)):
            upward = above < len(lengths) and (below < 0 or lengths[above] - centre <= centre - lengths[below])
            length = lengths[above] if upward else lengths[below]
            if not self._live(length):
                emptied.append(length)
                joining = 0
            else:
                joining = fill.joining(length)
                if joining == 0:
                    # Lengths further away on this side waste more still.
                    if upward:
                        above = len(lengths)
                    else:
                        below = -1
                    continue
            if joining:
                before = len(taken)
                self._pop(length, joining, taken)
                fill.joined(length, len(taken) - before)
            if upward:
                above += 1
            else:
                below -= 1
        self._forget(emptied)
        self.waiting -= len(taken)
        return taken

    def _live(self, length: int) -> bool:
        """Whether a ticket of this length waits; clears what is gone from the top of its file."""
        same = self._by_length[length]
        while same and same[0][2].gone:
            heappop(same)
            self._filed -= 1
        return bool(same)

    def _pop(self, length: int, count: int, into: list[Ticket]) -> None:
        same = self._by_length[length]
        before = len(same)
        while count and same:
            ticket = heappop(same)[2]
            if not ticket.gone:
                ticket.gone = True
                into.append(ticket)
                count -= 1
        self._filed -= before - len(same)

    def _forget(self, lengths: list[int]) -> None:
        for length in lengths:
            del self._by_length[length]
            del self._lengths[bisect_left(self._lengths, length)]

    def _refile(self) -> None:
        """Throw out what is gone. Runs once per many departures, so that each pays a constant share."""
        live = [ticket for ticket in self._arrivals if not ticket.gone]
        self._arrivals = deque(live)
        self._urgent = [(ticket.tag, ticket.seq, ticket) for ticket in live]
        heapify(self._urgent)
        self._by_length = {}
        for filed in self._urgent:
            self._by_length.setdefault(filed[2].length, []).append(filed)
        for same in self._by_length.values():
            heapify(same)
        self._lengths = sorted(self._by_length)
        self._filed = len(live)


class _Fill:
    """How full one batch is, and how many items of a length may still join it."""

    __slots__ = ("bounds", "count", "longest", "open", "slack", "unit", "waste")

    def __init__(self, longest: int, bounds: Bounds) -> None:
        self.bounds = bounds
        self.count = 1
        self.longest = longest
        self.unit = bounds.cost.item(longest)
        self.waste = 0.0
        self.slack = bounds.cost.base + bounds.overhead_ms
        self.open = bounds.items > 1 and 2 * longest <= bounds.tokens

    def joining(self, length: int) -> int:
        """How many items of `length` may join, by count, padded tokens and waste."""
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
        return max(0, int(max(by_slack, by_share)))
