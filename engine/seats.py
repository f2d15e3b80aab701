"""Sequences that are being generated, as the scheduler sees them: what a step of theirs may claim. Pure.

A sequence has left the backlog and keeps a seat until it ends. Its steps compete with the batches of others on the same
virtual clock, and each is charged to the flows whose sequences were in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.terms import Lane
from engine.backlog import Backlog, Flow, Ticket
from engine.batcher import Bounds
from engine.types import Entry


class Seat:
    """One sequence. `weight` is that of its priority; `seq` grows with each step, as if it came anew after it."""

    __slots__ = ("entry", "flow", "seq", "weight")

    def __init__(self, entry: Entry, flow: Flow, weight: float, seq: int) -> None:
        self.entry = entry
        self.flow = flow
        self.weight = weight
        self.seq = seq


@dataclass(frozen=True, slots=True)
class Claim:
    """A step that a model could run now. `start` and `due` are on the virtual clock: before and after the step."""

    model: str
    lane: Lane
    start: float
    due: float
    seq: int
    cost_ms: float
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A batch that could be formed around `ticket`. What it shares with a Claim has the same names."""

    backlog: Backlog
    ticket: Ticket
    bounds: Bounds
    cost_ms: float

    @property
    def lane(self) -> Lane:
        """The lane of all its items."""
        return self.backlog.kind.lane

    @property
    def alone(self) -> bool:
        """Whether nothing may run beside it."""
        return self.backlog.kind.alone

    @property
    def start(self) -> float:
        """The service that its flow has had."""
        return self.ticket.flow.served

    @property
    def due(self) -> float:
        """The service that its flow will have had."""
        return self.ticket.due

    @property
    def seq(self) -> int:
        """When it came."""
        return self.ticket.seq


def claim(model: str, seats: Sequence[Seat], cost_ms: float) -> Claim:
    """The claim of a step with these sequences, at least one; it is as urgent as the most urgent of them."""
    share = cost_ms / len(seats)
    return Claim(
        model=model,
        lane=Lane.INTERACTIVE if any(seat.entry.work.lane is Lane.INTERACTIVE for seat in seats) else Lane.BULK,
        start=min(seat.flow.served for seat in seats),
        due=min(seat.flow.served + share / seat.weight for seat in seats),
        seq=min(seat.seq for seat in seats),
        cost_ms=cost_ms,
        alone=any(seat.entry.work.alone for seat in seats),
    )
