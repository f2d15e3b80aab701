"""The waiting items that may share a batch, and taking a batch out of them. Pure.

A batch is formed around one item, the anchor. Items of its own length join first, then those of the nearest lengths,
the most urgent of each length first, until a bound is met.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

from catalog.terms import Lane, Verb
from engine.batcher import Bounds, Fill
from engine.types import Entry

_SPARE = 1024


@dataclass(frozen=True, slots=True)
class Kind:
    """What keeps items out of each other's batches. `group` stands for options that must not mix."""

    model: str
    verb: Verb
    lane: Lane
    group: Hashable = None
    alone: bool = False


class Flow:
    """One caller's works of one lane and priority, on the virtual clock of the scheduler.

    `served` is the service it has had, `tail` the deadline of the last item it brought, `waiting` how many items wait.
    """

    __slots__ = ("served", "tail", "waiting")

    def __init__(self) -> None:
        self.served = 0.0
        self.tail = 0.0
        self.waiting = 0


class Ticket:
    """One waiting item. `cost` is its cost on the virtual clock, `tag` its deadline there, `gone` that it has left."""

    __slots__ = ("cost", "entry", "flow", "gone", "length", "seq", "tag")

    def __init__(self, entry: Entry, length: int, flow: Flow, cost: float, tag: float, seq: int) -> None:
        self.entry = entry
        self.length = length
        self.flow = flow
        self.cost = cost
        self.tag = tag
        self.seq = seq
        self.gone = False

    @property
    def due(self) -> float:
        """When its flow will have been served if this item runs next: what makes one flow's item go before another's.

        It only ever grows while the item waits, as others of its flow run.
        """
        return self.flow.served + self.cost


class _Queue:
    """One flow's tickets in a backlog, and which entry among the turns stands for them.

    Whatever the caller has set a deadline for goes first, the earliest before all; the rest as it came.
    """

    __slots__ = ("tickets", "turn")

    def __init__(self) -> None:
        self.tickets: list[tuple[float, int, Ticket]] = []
        self.turn = 0

    def add(self, ticket: Ticket) -> None:
        deadline = ticket.entry.work.deadline
        heappush(self.tickets, (math.inf if deadline is None else deadline, ticket.seq, ticket))

    def first(self) -> Ticket | None:
        tickets = self.tickets
        while tickets and tickets[0][2].gone:
            heappop(tickets)
        return tickets[0][2] if tickets else None


class Backlog:
    """The waiting items of one kind: those that may run in one batch.

    Filed three times, by flow, by arrival and by length, so that nothing is scanned or sorted for a batch. A ticket
    that leaves one file is only marked as gone and is passed over in the others.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.waiting = 0
        self._flows: dict[Flow, _Queue] = {}
        self._turns: list[tuple[float, int, int, Flow]] = []
        self._turn = count()
        self._arrivals: deque[Ticket] = deque()
        self._lengths: list[int] = []
        self._by_length: dict[int, list[tuple[float, int, Ticket]]] = {}
        self._filed = 0

    def add(self, ticket: Ticket) -> None:
        """File a ticket; one flow's tickets come in the order of their tags."""
        self._file_by_flow(ticket)
        self._arrivals.append(ticket)
        same = self._by_length.get(ticket.length)
        if same is None:
            self._by_length[ticket.length] = [(ticket.tag, ticket.seq, ticket)]
            insort(self._lengths, ticket.length)
        else:
            heappush(same, (ticket.tag, ticket.seq, ticket))
        self.waiting += 1
        self._filed += 1
        if self._filed > 2 * self.waiting + _SPARE:
            self._refile()

    def drop(self, ticket: Ticket) -> None:
        """Take a ticket out of all files, without running it."""
        if ticket.gone:
            return
        queue = self._flows[ticket.flow]
        first = queue.first()
        ticket.gone = True
        self.waiting -= 1
        if first is ticket:
            # The next one may be cheaper, and due before it.
            self._take_turn(ticket.flow, queue)

    def head(self) -> Ticket | None:
        """The first ticket of the flow whose turn it is."""
        turns = self._turns
        while turns:
            due, _, turn, flow = turns[0]
            queue = self._flows.get(flow)
            if queue is None or queue.turn != turn:
                heappop(turns)
                continue
            first = queue.first()
            if first is not None and first.due <= due:
                return first
            # Others of the flow have run since it was put here: its turn has moved on.
            heappop(turns)
            self._take_turn(flow, queue)
        return None

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
        fill = Fill(anchor.length, bounds)
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
                if joining == 0 and (upward or bounds.padded):
                    # Lengths further away on this side waste more still, or are as much too long.
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
        return bool(same)

    def _pop(self, length: int, count: int, into: list[Ticket]) -> None:
        same = self._by_length[length]
        while count and same:
            ticket = heappop(same)[2]
            if not ticket.gone:
                ticket.gone = True
                into.append(ticket)
                count -= 1

    def _forget(self, lengths: list[int]) -> None:
        for length in lengths:
            del self._by_length[length]
            del self._lengths[bisect_left(self._lengths, length)]

    def _file_by_flow(self, ticket: Ticket) -> None:
        queue = self._flows.get(ticket.flow)
        if queue is None:
            queue = self._flows[ticket.flow] = _Queue()
        queue.add(ticket)
        if queue.first() is ticket:
            self._take_turn(ticket.flow, queue)

    def _take_turn(self, flow: Flow, queue: _Queue) -> None:
        """Put a flow among the turns by its first ticket; forget the flow if it has none."""
        first = queue.first()
        if first is None:
            del self._flows[flow]
            return
        queue.turn = next(self._turn)
        heappush(self._turns, (first.due, first.seq, queue.turn, flow))

    def _refile(self) -> None:
        """Throw out what is gone. Runs once per many departures, so that each pays a constant share."""
        live = [ticket for ticket in self._arrivals if not ticket.gone]
        self._arrivals = deque(live)
        self._flows, self._turns, self._by_length = {}, [], {}
        for ticket in live:
            self._file_by_flow(ticket)
            self._by_length.setdefault(ticket.length, []).append((ticket.tag, ticket.seq, ticket))
        for same in self._by_length.values():
            heapify(same)
        self._lengths = sorted(self._by_length)
        self._filed = len(live)
