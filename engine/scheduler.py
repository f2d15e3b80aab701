"""Which model and which items run next, over all models, lanes and callers of one device. Pure: no clock, no lock.

Deadlines are on a virtual clock that advances with the service given. A caller's items of one lane and priority are a
flow; its first item's deadline is the service the flow has had, plus the item's cost over the weight of its priority,
and a flow that comes anew starts at the clock's time. The earliest deadline among the models that can run goes first,
so callers of equal standing take turns by cost, and one job does not wait for another caller's thousand. Within a flow
the order is that of arrival. Waiting makes an item more urgent by itself, since the clock moves on.

Two shares bound every wait. While interactive work waits, the bulk lane still gets `bulk_share` of the device; and
`oldest_share` of it goes to whatever has waited longest, however the deadlines lie.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

from catalog.terms import Lane
from engine.backlog import Backlog, Flow, Kind, Ticket
from engine.batcher import Bounds
from engine.types import Batch, Entry, Work

_SPARE = 256


@dataclass(frozen=True, slots=True)
class Policy:
    """What urgency is made of. `least_ms` is what an item is taken to cost at least, so that free ones take turns too.

    Each step of priority is worth `priority_step` times a caller's share at the step below.
    """

    bulk_share: float = 1 / 16
    oldest_share: float = 1 / 16
    priority_step: float = 1.5
    least_ms: float = 0.01


DEFAULT_POLICY = Policy()

Ready = Callable[[str], Bounds | None]
"""What a model's next batch may be, or None if the model cannot run one now."""


@dataclass(slots=True)
class _Waiting:
    """A work of which items wait. `left` counts them."""

    work: Work
    flow: Flow
    backlog: Backlog
    tickets: list[Ticket]
    left: int


class _Share:
    """A part of the device owed to somebody: earned while others run, due once it covers a cost, spent by running."""

    def __init__(self, part: float) -> None:
        self._part = part
        self._credit = 0.0

    def earn(self, cost: float) -> None:
        self._credit += cost * self._part

    def spend(self, cost: float) -> None:
        self._credit -= cost

    def due(self, cost: float) -> bool:
        return self._credit >= cost


@dataclass(slots=True)
class _Candidate:
    backlog: Backlog
    ticket: Ticket
    bounds: Bounds


class Scheduler:
    """The waiting works of one device. Costs a few microseconds an item, whatever waits."""

    def __init__(self, policy: Policy = DEFAULT_POLICY) -> None:
        self._policy = policy
        self._works: dict[str, _Waiting] = {}
        self._backlogs: dict[Kind, Backlog] = {}
        self._of_model: dict[str, int] = {}
        self._flows: dict[tuple[Lane, int, str], Flow] = {}
        self._flow_room = _SPARE
        self._now = dict.fromkeys(Lane, 0.0)
        self._bulk = _Share(policy.bulk_share)
        self._oldest = _Share(policy.oldest_share)
        self._deadlines: list[tuple[float, str]] = []
        self._deadline_room = _SPARE
        self._seq = count()
        self._ids = count(1)
        self.items = 0

    @property
    def works(self) -> int:
        """How many works have items waiting."""
        return len(self._works)

    @property
    def models(self) -> list[str]:
        """The models that items wait for."""
        return list(self._of_model)

    def waiting(self, model: str) -> int:
        """How many items wait for this model."""
        return self._of_model.get(model, 0)

    def add(self, work: Work, group: Hashable = None) -> None:
        """Take in a work of at least one item, under an id that does not wait here.

        `group` keeps it apart from works whose options must not mix with its own.
        """
        kind = Kind(work.model, work.verb, work.lane, group, work.alone)
        backlog = self._backlogs.get(kind)
        if backlog is None:
            backlog = self._backlogs[kind] = Backlog(kind)
        flow = self._flow(work)
        weight = self._policy.priority_step ** (work.priority - 5)
        least = self._policy.least_ms
        if not flow.waiting:
            flow.served = max(flow.served, self._now[work.lane])
            flow.tail = max(flow.tail, flow.served)
        tail = flow.tail
        tickets = []
        for item in work.items:
            cost = max(item.cost_ms, least) / weight
            tail += cost
            ticket = Ticket(Entry(work, item), max(item.length, 1), flow, cost, tail, next(self._seq))
            backlog.add(ticket)
            tickets.append(ticket)
        flow.tail = tail
        flow.waiting += len(tickets)
        self._works[work.id] = _Waiting(work, flow, backlog, tickets, len(tickets))
        self._of_model[work.model] = self._of_model.get(work.model, 0) + len(tickets)
        self.items += len(tickets)
        if work.deadline is not None:
            self._watch(work.deadline, work.id)

    def pick(self, ready: Ready, *, idle: bool) -> Batch | None:
        """The next batch, or None if no model with waiting items can run one.

        A work marked `alone` gets batches of one item, and only on an `idle` device: when its turn comes, None is
        given until the device is.
        """
        heads, oldest = self._candidates(ready)
        interactive, bulk = heads.get(Lane.INTERACTIVE), heads.get(Lane.BULK)
        chosen = interactive or bulk
        if chosen is None or oldest is None:
            return None
        contested = interactive is not None and bulk is not None
        if bulk is not None and contested and self._bulk.due(self._cost(bulk)):
            chosen = bulk
        aged = oldest.ticket is not chosen.ticket and self._oldest.due(self._cost(oldest))
        if aged:
            chosen = oldest
        kind = chosen.backlog.kind
        if kind.alone and not idle:
            return None

        due = chosen.ticket.due
        tickets = self._take(chosen)
        longest = max(ticket.length for ticket in tickets)
        cost = max(chosen.bounds.cost.batch(len(tickets), longest), self._policy.least_ms * len(tickets))
        if contested and kind.lane is Lane.BULK:
            self._bulk.spend(cost)
        elif contested:
            self._bulk.earn(cost)
        if aged:
            self._oldest.spend(cost)
        else:
            self._now[kind.lane] = max(self._now[kind.lane], due)
            if oldest.ticket is not chosen.ticket:
                self._oldest.earn(cost)
        entries = tuple([ticket.entry for ticket in tickets])
        return Batch(next(self._ids), kind.model, kind.verb, entries, kind.alone)

    def drop(self, work_id: str) -> Work | None:
        """Forget a work's waiting items. None if none of them waits."""
        waiting = self._works.get(work_id)
        if waiting is None:
            return None
        for ticket in waiting.tickets:
            waiting.backlog.drop(ticket)
        self._gone(waiting, waiting.left)
        flow = waiting.flow
        if not flow.waiting:
            # What never ran does not count against the caller's next job.
            flow.tail = flow.served
        self._tidy(waiting.backlog)
        return waiting.work

    def drop_model(self, model: str) -> list[Work]:
        """Forget all that waits for this model."""
        works = [waiting.work for waiting in self._works.values() if waiting.work.model == model]
        for work in works:
            self.drop(work.id)
        return works

    def untouched(self) -> list[Work]:
        """The works of which no item was taken, in the order of their arrival."""
        return [waiting.work for waiting in self._works.values() if waiting.left == len(waiting.tickets)]

    def expire(self, now: float) -> list[Work]:
        """Forget the works whose deadline has passed and of which items wait."""
        passed = []
        while self._deadlines and (self._deadlines[0][0] <= now or not self._waits(*self._deadlines[0])):
            deadline, work_id = heappop(self._deadlines)
            if self._waits(deadline, work_id):
                passed.append(self._works[work_id].work)
                self.drop(work_id)
        return passed

    def next_deadline(self) -> float | None:
        """The earliest deadline of a work of which items wait; perhaps that of one which has just left."""
        return self._deadlines[0][0] if self._deadlines else None

    def _candidates(self, ready: Ready) -> tuple[dict[Lane, _Candidate], _Candidate | None]:
        """The most urgent item of each lane that can run, and the one that has waited longest."""
        heads: dict[Lane, _Candidate] = {}
        oldest: _Candidate | None = None
        for kind, backlog in self._backlogs.items():
            bounds = ready(kind.model)
            if bounds is None:
                continue
            head, first = backlog.head(), backlog.oldest()
            if head is None or first is None:
                continue
            best = heads.get(kind.lane)
            if best is None or (head.due, head.seq) < (best.ticket.due, best.ticket.seq):
                heads[kind.lane] = _Candidate(backlog, head, bounds)
            if oldest is None or first.seq < oldest.ticket.seq:
                oldest = _Candidate(backlog, first, bounds)
        return heads, oldest

    def _cost(self, candidate: _Candidate) -> float:
        return max(candidate.bounds.cost.batch(1, candidate.ticket.length), self._policy.least_ms)

    def _take(self, chosen: _Candidate) -> list[Ticket]:
        backlog, bounds = chosen.backlog, chosen.bounds
        if backlog.kind.alone:
            bounds = Bounds(1, bounds.tokens, bounds.cost)
        tickets = backlog.take(chosen.ticket, bounds)
        works = self._works
        for ticket in tickets:
            ticket.flow.served += ticket.cost
            self._gone(works[ticket.entry.work.id], 1)
        self._tidy(backlog)
        return tickets

    def _gone(self, waiting: _Waiting, items: int) -> None:
        model = waiting.work.model
        waiting.left -= items
        waiting.flow.waiting -= items
        self.items -= items
        self._of_model[model] -= items
        if not waiting.left:
            del self._works[waiting.work.id]
        if not self._of_model[model]:
            del self._of_model[model]

    def _tidy(self, backlog: Backlog) -> None:
        if not backlog.waiting:
            del self._backlogs[backlog.kind]

    def _flow(self, work: Work) -> Flow:
        key = (work.lane, work.priority, work.caller)
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= self._flow_room:
                now = self._now
                self._flows = {k: f for k, f in self._flows.items() if f.waiting or f.served > now[k[0]]}
                self._flow_room = 2 * len(self._flows) + _SPARE
            flow = self._flows[key] = Flow()
        return flow

    def _watch(self, deadline: float, work_id: str) -> None:
        if len(self._deadlines) >= self._deadline_room:
            self._deadlines = [entry for entry in self._deadlines if self._waits(*entry)]
            heapify(self._deadlines)
            self._deadline_room = 2 * len(self._deadlines) + _SPARE
        heappush(self._deadlines, (deadline, work_id))

    def _waits(self, deadline: float, work_id: str) -> bool:
        """Whether an entry of the deadlines still stands: it may outlive its work, of which it keeps nothing alive."""
        waiting = self._works.get(work_id)
        return waiting is not None and waiting.work.deadline == deadline
