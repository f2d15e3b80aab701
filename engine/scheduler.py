"""Which model and which items run next, over all models, lanes and callers of one device. Pure: no lock, no clock.

Deadlines are on a virtual clock that advances with the service given. A caller's items of one lane and priority are a
flow; its first item's deadline is the service the flow has had, plus the item's cost over the weight of its priority,
and a flow that comes anew starts at the clock's time. The earliest deadline among the models that can run goes first,
so callers of equal standing take turns by cost, and one job does not wait for another caller's thousand. An item's cost
is what it was said to cost until it runs; then its flow is charged with its share of what the batch is predicted to
take by then. Within a flow the order is that of arrival, but that what its caller has set a deadline for goes first.
Waiting makes an item more urgent by itself, since the clock moves on.

A model that works step by step claims its steps (see `engine.seats`). After each step a batch has the next turn, so
that it waits no longer than one; once batches have run ahead by `step_lead_ms` that way, the clock alone decides.

Two shares bound every wait. While interactive work waits, the bulk lane still gets `bulk_share` of the device; and
`oldest_share` of it goes to whatever has waited longest, however the deadlines lie. What bulk work has had of the
device while no interactive work waited counts, so that it presses in only where it would not advance by itself. While
interactive work has been seen lately, bulk batches are short (see `engine.courtesy`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from catalog.schema import CostCoefficients
from catalog.terms import Lane
from engine.backlog import Backlog, Flow, Kind, Ticket
from engine.batcher import Bounds
from engine.courtesy import Courtesy, Share
from engine.deadlines import Deadlines
from engine.seats import Candidate, Claim, Seat, claim
from engine.types import Batch, Entry, Item, Work

_SPARE = 256
_SINGLE = Bounds(1, 1, CostCoefficients(base=0.0, per_token=0.0))


@dataclass(frozen=True, slots=True)
class Policy:
    """What urgency is made of. `least_ms` is what an item is taken to cost at least, so that free ones take turns too.

    Each step of priority is worth `priority_step` times a caller's share at the step below. For `heed_s` after
    interactive work was seen bulk batches are small. What bulk work has had while no interactive work waited counts for
    its shares up to `ahead_ms`.
    """

    bulk_share: float = 1 / 16
    oldest_share: float = 1 / 16
    priority_step: float = 1.5
    least_ms: float = 0.01
    step_lead_ms: float = 1000.0
    heed_s: float = 2.0
    ahead_ms: float = 50.0


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


class Scheduler:
    """The waiting works of one device. Costs a few microseconds an item, whatever waits.

    `ids` numbers the batches. `holding` tells that the turn is with a work that runs alone, and the device not idle.
    """

    def __init__(self, policy: Policy = DEFAULT_POLICY, ids: Iterator[int] | None = None) -> None:
        self._policy = policy
        self._works: dict[str, _Waiting] = {}
        self._backlogs: dict[Kind, Backlog] = {}
        self._of_model: dict[str, int] = {}
        self._flows: dict[tuple[Lane, int, str], Flow] = {}
        self._flow_room = _SPARE
        self._now = dict.fromkeys(Lane, 0.0)
        self._bulk = Share(policy.bulk_share)
        self._oldest = Share(policy.oldest_share)
        self._courtesy = Courtesy(policy.heed_s)
        self._deadlines = Deadlines(self._waits)
        self._seq = count()
        self._ids = ids or count(1)
        self._joins = 0
        self._stepped = False
        self.holding = False
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
        if work.lane is Lane.INTERACTIVE:
            self._courtesy.saw(work.arrived)
        self._file(work, work.items, self._seq, group)

    def put_back(self, seat: Seat, group: Hashable = None) -> None:
        """A seat is given up before its first step: its item waits again, in its old place. `group` as for `add`."""
        self._file(seat.entry.work, [seat.entry.item], iter([seat.seq]), group)
        self.leave(seat)

    def _file(self, work: Work, items: Sequence[Item], seqs: Iterator[int], group: Hashable) -> None:
        kind = Kind(work.model, work.verb, work.lane, group, work.alone)
        backlog = self._backlogs.get(kind)
        if backlog is None:
            backlog = self._backlogs[kind] = Backlog(kind)
        flow, weight, least = self._flow(work), self._weight(work), self._policy.least_ms
        if not flow.waiting:
            flow.served = max(flow.served, self._now[work.lane])
        tickets = []
        for item in items:
            cost = max(item.cost_ms, least) / weight
            ticket = Ticket(Entry(work, item), max(item.length, 1), flow, cost, weight, next(seqs))
            backlog.add(ticket)
            tickets.append(ticket)
        flow.waiting += len(tickets)
        waiting = self._works.setdefault(work.id, _Waiting(work, flow, backlog, [], 0))
        waiting.tickets += tickets
        waiting.left += len(tickets)
        self._of_model[work.model] = self._of_model.get(work.model, 0) + len(tickets)
        self.items += len(tickets)
        if work.deadline is not None:
            self._deadlines.add(work.deadline, work.id)

    def expects(self, now: float) -> bool:
        """Whether interactive work has been seen lately, so that more of it may come any moment."""
        return self._courtesy.expects(now)

    def expects_until(self, now: float) -> float | None:
        """Until when it is expected if none comes; None if it is not."""
        return self._courtesy.until(now)

    def bulk_ms(self, own_ms: float, now: float) -> float:
        """How long a bulk step may take now of which `own_ms` are spent whatever is in it."""
        return self._courtesy.most_ms(own_ms, now)

    def pick(self, ready: Ready, *, idle: bool, now: float = 0.0, bulk: bool = True) -> Batch | None:
        """The next batch, or None if no model with waiting items can run one."""
        chosen = self.choose(ready, (), idle=idle, now=now, bulk=bulk)
        return chosen if isinstance(chosen, Batch) else None

    def choose(
        self, ready: Ready, claims: Sequence[Claim], *, idle: bool, now: float = 0.0, bulk: bool = True
    ) -> Batch | Claim | None:
        """The next batch, or the claim whose step goes first; None if nothing that waits can run.

        A work marked `alone` gets batches of one item, and only on an `idle` device: when its turn comes, None is
        given until the device is. A step that was chosen is charged with `charge`. Without `bulk` that lane gets
        nothing while interactive work is expected: a lane is kept free for it.
        """
        heads, oldest = self._candidates(ready, claims, bulk=bulk or not self._courtesy.expects(now))
        interactive, waiting = heads.get(Lane.INTERACTIVE), heads.get(Lane.BULK)
        chosen = interactive or waiting
        self.holding = False
        if chosen is None or oldest is None:
            return None
        if interactive is not None:
            self._courtesy.saw(now)
        contested = interactive is not None and waiting is not None
        if waiting is not None and contested and self._bulk.due(waiting.cost_ms):
            chosen = waiting
        aged = oldest.seq != chosen.seq and self._oldest.due(oldest.cost_ms)
        if chosen.lane is oldest.lane is Lane.BULK and oldest.seq != chosen.seq and self._courtesy.expects(now):
            # Where it takes nothing from interactive work, what has waited longest goes a little early.
            aged = aged or self._oldest.owed
        if aged:
            chosen = oldest
        if chosen.alone and not idle:
            self.holding = True
            return None

        start, due, lane, waits = chosen.start, chosen.due, chosen.lane, oldest.seq != chosen.seq
        given: Batch | Claim
        if isinstance(chosen, Claim):
            given, cost = chosen, chosen.cost_ms
        else:
            given, cost = self._take(chosen, now)
            # What it took, at last, is known better than what it was said to cost.
            due = start + given.shares[0] * cost / chosen.ticket.weight
        self._stepped = isinstance(chosen, Claim)
        if lane is Lane.INTERACTIVE:
            self._courtesy.ran(cost)
            if contested:
                self._bulk.earn(cost)
        elif contested:
            self._bulk.spend(cost)
        else:
            self._bulk.had(cost, self._policy.ahead_ms)
        if aged:
            self._oldest.spend(cost)
        else:
            self._now[lane] = max(self._now[lane], due)
            if waits:
                self._oldest.earn(cost)
            elif lane is Lane.BULK:
                self._oldest.had(cost, self._policy.ahead_ms)
        return given

    def join(self, model: str) -> Seat | None:
        """Take the next item of a model that works step by step. Nothing is charged for it but its steps.

        While interactive items wait too, `bulk_share` of the seats go to bulk ones. `leave` gives the seat up.
        """
        heads = self._heads(model)
        if not heads:
            return None
        lane = Lane.INTERACTIVE if Lane.INTERACTIVE in heads else Lane.BULK
        if len(heads) > 1:
            self._joins += 1
            if self._joins * self._policy.bulk_share >= 1:
                self._joins, lane = 0, Lane.BULK
        backlog, head = heads[lane]
        (ticket,) = backlog.take(head, _SINGLE)
        ticket.flow.waiting += 1
        self._gone(self._works[ticket.entry.work.id], 1)
        self._tidy(backlog)
        return Seat(ticket.entry, ticket.flow, self._weight(ticket.entry.work), ticket.seq)

    def leave(self, seat: Seat) -> None:
        """A sequence has ended."""
        seat.flow.waiting -= 1

    def first_claim(self, model: str, cost_ms: Callable[[Item], float]) -> Claim | None:
        """What the first step of a model claims whose items all wait still; None if there are none."""
        heads = self._heads(model)
        if not heads:
            return None
        _, head = heads.get(Lane.INTERACTIVE) or heads[Lane.BULK]
        seat = Seat(head.entry, head.flow, self._weight(head.entry.work), head.seq)
        return claim(model, [seat], cost_ms(head.entry.item))

    def charge(self, shares: Sequence[tuple[Seat, float]]) -> None:
        """A step runs: each sequence in it with its part of the predicted milliseconds."""
        for seat, cost_ms in shares:
            seat.flow.served += max(cost_ms, self._policy.least_ms) / seat.weight
            seat.seq = next(self._seq)

    def drop(self, work_id: str) -> Work | None:
        """Forget a work's waiting items. None if none of them waits."""
        waiting = self._works.get(work_id)
        if waiting is None:
            return None
        for ticket in waiting.tickets:
            waiting.backlog.drop(ticket)
        self._gone(waiting, waiting.left)
        self._tidy(waiting.backlog)
        return waiting.work

    def drop_model(self, model: str) -> list[Work]:
        """Forget all that waits for this model."""
        works = [waiting.work for waiting in self._works.values() if waiting.work.model == model]
        for work in works:
            self.drop(work.id)
        return works

    def expire(self, now: float) -> list[Work]:
        """Forget the works whose deadline has passed and of which items wait."""
        passed = iter(lambda: self._deadlines.passed(now), None)
        return [work for work_id in passed if (work := self.drop(work_id)) is not None]

    def next_deadline(self) -> float | None:
        """The earliest deadline of a work of which items wait; perhaps that of one which has just left."""
        return self._deadlines.first

    def _candidates(
        self, ready: Ready, claims: Sequence[Claim], *, bulk: bool
    ) -> tuple[dict[Lane, Candidate | Claim], Candidate | Claim | None]:
        """The most urgent of each lane that can run, and what has waited longest."""
        heads: dict[Lane, Candidate | Claim] = {}
        best: dict[Lane, tuple[float, int, Backlog, Ticket, Bounds]] = {}
        first: tuple[Backlog, Ticket, Bounds] | None = None
        for kind, backlog in self._backlogs.items():
            if not bulk and kind.lane is Lane.BULK:
                continue
            bounds = ready(kind.model)
            if bounds is None:
                continue
            head, arrived = backlog.head(), backlog.oldest()
            if head is None or arrived is None:
                continue
            found = best.get(kind.lane)
            if found is None or (head.due, head.seq) < found[:2]:
                best[kind.lane] = (head.due, head.seq, backlog, head, bounds)
            if first is None or arrived.seq < first[1].seq:
                first = (backlog, arrived, bounds)
        for lane, (_, _, backlog, head, bounds) in best.items():
            heads[lane] = self._candidate(backlog, head, bounds)
        oldest: Candidate | Claim | None = self._candidate(*first) if first else None
        if not bulk:
            claims = [step for step in claims if step.lane is not Lane.BULK]
        for lane in Lane:
            # By what they have had: of one flow's, the smaller step would be due first again and again.
            step = min((c for c in claims if c.lane is lane), key=lambda c: (c.start, c.seq), default=None)
            if step is not None and self._goes_before(step, heads.get(lane)):
                heads[lane] = step
        for step in claims:
            # To a batch, a step that follows another is not owed for its age.
            if oldest is None or (step.seq < oldest.seq and (isinstance(oldest, Claim) or not self._stepped)):
                oldest = step
        return heads, oldest

    def _goes_before(self, step: Claim, batch: Candidate | Claim | None) -> bool:
        if batch is None:
            return True
        if self._stepped and batch.start <= step.start + self._policy.step_lead_ms:
            return False
        return (step.due, step.seq) < (batch.due, batch.seq)

    def _candidate(self, backlog: Backlog, ticket: Ticket, bounds: Bounds) -> Candidate:
        return Candidate(backlog, ticket, bounds, max(bounds.cost_ms([ticket.length]), self._policy.least_ms))

    def _heads(self, model: str) -> dict[Lane, tuple[Backlog, Ticket]]:
        """The most urgent item of each lane that waits for this model."""
        heads: dict[Lane, tuple[Backlog, Ticket]] = {}
        for kind, backlog in self._backlogs.items():
            head = backlog.head() if kind.model == model else None
            found = heads.get(kind.lane)
            if head is not None and (found is None or (head.due, head.seq) < (found[1].due, found[1].seq)):
                heads[kind.lane] = (backlog, head)
        return heads

    def _take(self, chosen: Candidate, now: float) -> tuple[Batch, float]:
        """The batch around a candidate, and its cost."""
        backlog, bounds, kind = chosen.backlog, chosen.bounds, chosen.backlog.kind
        if kind.lane is Lane.BULK:
            bounds = self._courtesy.bounds(bounds, chosen.ticket.length, now)
        if kind.alone:
            bounds = replace(bounds, items=1)
        tickets = backlog.take(chosen.ticket, bounds)
        cost = max(bounds.cost_ms([ticket.length for ticket in tickets]), self._policy.least_ms * len(tickets))
        shares = bounds.shares([ticket.length for ticket in tickets])
        works = self._works
        for ticket, share in zip(tickets, shares, strict=True):
            ticket.flow.served += share * cost / ticket.weight
            self._gone(works[ticket.entry.work.id], 1)
        self._tidy(backlog)
        entries = tuple([ticket.entry for ticket in tickets])
        return Batch(next(self._ids), kind.model, kind.verb, entries, kind.alone, shares=shares), cost

    def _weight(self, work: Work) -> float:
        return self._policy.priority_step ** (work.priority - 5)

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

    def _waits(self, deadline: float, work_id: str) -> bool:
        """Whether a work waits still, with this deadline."""
        waiting = self._works.get(work_id)
        return waiting is not None and waiting.work.deadline == deadline
