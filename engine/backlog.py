"""The waiting items that may share a batch, and taking a batch out of them. Pure.

A batch is formed around one item, the anchor. Items of its own length join first, then those of the nearest lengths,
those of the flow that has had least first, until a bound is met. Flows are charged for a batch by the scheduler.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heappop, heappush

from catalog.terms import Lane, Verb
from engine.batcher import Bounds, Fill
from engine.types import Entry

_SPARE = 1024
_LEAST = 1e-6


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

    `served` is the service it has had, which never falls, `waiting` how many items wait.
    """

    __slots__ = ("served", "waiting")

    def __init__(self) -> None:
        self.served = 0.0
        self.waiting = 0


class Ticket:
    """One waiting item. `cost` is what it was said to cost, on the virtual clock, where a millisecond is 1 / `weight`.

    `gone` tells that it has left.
    """

    __slots__ = ("cost", "entry", "flow", "gone", "length", "seq", "weight")

    def __init__(self, entry: Entry, length: int, flow: Flow, cost: float, weight: float, seq: int) -> None:
        self.entry = entry
        self.length = length
        self.flow = flow
        self.cost = cost
        self.weight = weight
        self.seq = seq
        self.gone = False

    @property
    def due(self) -> float:
        """When its flow will have been served if this item runs next: what makes one flow's item go before another's.

        It only ever grows while the item waits, as others of its flow run.
        """
        return self.flow.served + self.cost


class _Queue:
    """One flow's tickets, and which entry among the turns stands for them.

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


class _Turns:
    """Flows with tickets, in the order in which their first tickets are due, or `by_served` of what they have had.

    An entry of the heap may say less than is true by now, never more: what has moved on is put back further down.
    """

    __slots__ = ("_by_served", "_heap", "_queues", "_turn")

    def __init__(self, *, by_served: bool) -> None:
        self._by_served = by_served
        self._heap: list[tuple[float, int, int, Flow]] = []
        self._queues: dict[Flow, _Queue] = {}
        self._turn = 0

    def __len__(self) -> int:
        return len(self._heap) + sum(len(queue.tickets) for queue in self._queues.values())

    def add(self, ticket: Ticket) -> None:
        queue = self._queues.get(ticket.flow)
        if queue is None:
            queue = self._queues[ticket.flow] = _Queue()
        queue.add(ticket)
        if queue.first() is ticket:
            self._put(ticket.flow, queue)

    def is_first(self, ticket: Ticket) -> bool:
        """Whether it is the first of its flow."""
        return self._queues[ticket.flow].first() is ticket

    def moved(self, flow: Flow) -> None:
        """Tickets of it have left: if the first has, the next one may be cheaper, and due before it."""
        queue = self._queues.get(flow)
        if queue is not None and queue.tickets[0][2].gone:
            self._put(flow, queue)

    def head(self) -> Ticket | None:
        """The first ticket of the flow whose turn it is."""
        heap, queues, by_served = self._heap, self._queues, self._by_served
        while heap:
            at, _, turn, flow = heap[0]
            queue = queues.get(flow)
            if queue is None or queue.turn != turn:
                heappop(heap)
                continue
            first = queue.first()
            if first is not None and flow.served + (0.0 if by_served else first.cost) <= at:
                return first
            heappop(heap)
            self._put(flow, queue)
        return None

    def pop(self, count: int, had: dict[Flow, float], each: float) -> list[Ticket]:
        """The `count` tickets of those flows that have had least, their parts of the batch included; they are gone.

        `had` is what each has had of the batch, and `each` is what a ticket adds to that.
        """
        taken: list[Ticket] = []
        open_: list[tuple[float, int, Flow, _Queue]] = []
        while len(taken) < count:
            head = self.head()
            while head is not None and (not open_ or (head.flow.served, head.seq) < open_[0][:2]):
                flow = heappop(self._heap)[3]
                heappush(open_, (flow.served + had.get(flow, 0.0), head.seq, flow, self._queues[flow]))
                head = self.head()
            if not open_:
                break
            _, _, flow, queue = heappop(open_)
            # Nobody else is there, most of the time.
            left = count - len(taken) if not open_ and head is None else 1
            while left and (ticket := queue.first()) is not None:
                heappop(queue.tickets)
                ticket.gone = True
                taken.append(ticket)
                had[flow] = had.get(flow, 0.0) + each / ticket.weight
                left -= 1
            following = queue.first()
            if following is None:
                del self._queues[flow]
            else:
                heappush(open_, (flow.served + had[flow], following.seq, flow, queue))
        for _, _, flow, queue in open_:
            self._put(flow, queue)
        return taken

    def _put(self, flow: Flow, queue: _Queue) -> None:
        """Put a flow among the turns by its first ticket; forget the flow if it has none."""
        first = queue.first()
        if first is None:
            del self._queues[flow]
            return
        self._turn += 1
        queue.turn = self._turn
        at = flow.served if self._by_served else flow.served + first.cost
        heappush(self._heap, (at, first.seq, self._turn, flow))


class Backlog:
    """The waiting items of one kind: those that may run in one batch.

    Filed three times, by flow, by arrival and by length, so that nothing is scanned or sorted for a batch. A ticket
    that leaves one file is only marked as gone and is passed over in the others.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.waiting = 0
        self._flows = _Turns(by_served=False)
        self._arrivals: deque[Ticket] = deque()
        self._lengths: list[int] = []
        self._by_length: dict[int, _Turns] = {}
        self._filed = 0

    def add(self, ticket: Ticket) -> None:
        """File a ticket."""
        self._flows.add(ticket)
        self._arrivals.append(ticket)
        same = self._by_length.get(ticket.length)
        if same is None:
            same = self._by_length[ticket.length] = _Turns(by_served=True)
            insort(self._lengths, ticket.length)
        same.add(ticket)
        self.waiting += 1
        self._filed += 1
        if self._filed > 2 * self.waiting + _SPARE:
            self._refile()

    def drop(self, ticket: Ticket) -> None:
        """Take a ticket out of all files, without running it."""
        if ticket.gone:
            return
        files = [file for file in (self._flows, self._by_length[ticket.length]) if file.is_first(ticket)]
        ticket.gone = True
        self.waiting -= 1
        for file in files:
            file.moved(ticket.flow)

    def head(self) -> Ticket | None:
        """The first ticket of the flow whose turn it is."""
        return self._flows.head()

    def oldest(self) -> Ticket | None:
        """The ticket that has waited longest."""
        arrivals = self._arrivals
        while arrivals and arrivals[0].gone:
            arrivals.popleft()
        return arrivals[0] if arrivals else None

    def take(self, anchor: Ticket, bounds: Bounds) -> list[Ticket]:
        """The tickets of one batch around `anchor`, which comes first. They are gone from here on."""
        anchor.gone = True
        each = max(bounds.cost.item(anchor.length), _LEAST)
        taken, emptied, had = [anchor], [], {anchor.flow: each / anchor.weight}
        self._by_length[anchor.length].moved(anchor.flow)
        fill = Fill(anchor.length, bounds)
        lengths, centre = self._lengths, anchor.length
        above = bisect_left(lengths, centre)
        below = above - 1
        while fill.open and (below >= 0 or above < len(lengths)):
            upward = above < len(lengths) and (below < 0 or lengths[above] - centre <= centre - lengths[below])
            length = lengths[above] if upward else lengths[below]
            if self._by_length[length].head() is None:
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
                joined = self._by_length[length].pop(joining, had, each)
                fill.joined(length, len(joined))
                taken += joined
            if upward:
                above += 1
            else:
                below -= 1
        self._forget(emptied)
        for flow in had:
            self._flows.moved(flow)
        self.waiting -= len(taken)
        return taken

    def _forget(self, lengths: list[int]) -> None:
        for length in lengths:
            del self._by_length[length]
            del self._lengths[bisect_left(self._lengths, length)]

    def _refile(self) -> None:
        """Throw out what is gone. Runs once per many departures, so that each pays a constant share."""
        live = [ticket for ticket in self._arrivals if not ticket.gone]
        self._arrivals = deque(live)
        self._flows, self._by_length = _Turns(by_served=False), {}
        for ticket in live:
            self._flows.add(ticket)
            same = self._by_length.get(ticket.length)
            if same is None:
                same = self._by_length[ticket.length] = _Turns(by_served=True)
            same.add(ticket)
        self._lengths = sorted(self._by_length)
        self._filed = len(live)
