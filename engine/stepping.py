"""Which sequences the next step of a generating model takes, and how much of their prompts it reads. Pure.

A step is predicted to take what its tokens add, and the larger of the two bases where it both reads and makes: the
weights are gone through once. Whoever had no part in the last step goes first, then those who make a token, and what
is left of the time reads prompts, the last part of one as the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from catalog.schema import CostCoefficients
from engine.adapters.base import Part, TokenSequence
from engine.costs import Pass
from engine.passes import Lesson
from engine.seats import Seat
from engine.types import Piece

LEAST_READ = 16
"""Tokens of a prompt that a step reads at least, so that reading ends however dear it is."""

_MEND_STEPS = 100
"""Good steps after which what a lack of memory has cut is allowed twice as much again."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Predicted milliseconds: `read` by the lengths of prompts, `step` by what each sequence has until now."""

    read: CostCoefficients
    step: CostCoefficients

    def reading(self, begin: int, end: int) -> float:
        """Reading a prompt on, from `begin` to `end`: what all of it up to there costs, less what is read already."""
        return self.read.item(end) - self.read.item(begin)

    def making(self, sequence: TokenSequence) -> float:
        """One new token of a sequence."""
        return self.step.item(sequence.read + sequence.made, 1)

    def readable(self, begin: int, left_ms: float) -> float:
        """How many tokens from `begin` on can be read in so long; infinite where reading is free."""
        linear, square = self.read.per_token, self.read.per_square
        until_ms = self.read.item(begin) + left_ms
        if left_ms < 0:
            return 0.0
        if square > 0:
            return (math.sqrt(linear * linear + 4 * square * until_ms) - linear) / (2 * square) - begin
        return until_ms / linear - begin if linear > 0 else math.inf


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What a step may be: its predicted time, sequences and tokens. None: as many as there are."""

    ms: float
    sequences: int | None = None
    tokens: int | None = None

    def cut(self, sequences: int, tokens: int) -> StepLimits:
        """After a step for which memory did not last, and which ran with no more than this at once."""
        return replace(self, sequences=max(1, sequences), tokens=max(1, tokens))

    def mended(self, good: int) -> StepLimits:
        """After so many good steps in a row."""
        if good == 0 or good % _MEND_STEPS or self.sequences is None or self.tokens is None:
            return self
        return replace(self, sequences=2 * self.sequences, tokens=2 * self.tokens)


@dataclass(slots=True)
class Sitting:
    """A sequence with its seat. `cache` is what it was lent for all its tokens, `turn` the last step that it was in.

    `told` is how much of its text the listener has heard.
    """

    sequence: TokenSequence
    seat: Seat
    cache: int = 0
    turn: int = 0
    told: int = 0

    @property
    def alone(self) -> bool:
        """Whether no other may be in a step with it."""
        return self.sequence.entry.work.alone


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The parts of a step in order, each with its sitting and the milliseconds that it adds."""

    sittings: tuple[Sitting, ...] = ()
    parts: tuple[Part, ...] = ()
    shares: tuple[float, ...] = ()
    cost_ms: float = 0.0

    @property
    def tokens(self) -> int:
        """The tokens that the step computes."""
        return sum(max(part.read, 1) for part in self.parts)

    @property
    def alone(self) -> bool:
        """Whether nothing may run beside it."""
        return any(sitting.alone for sitting in self.sittings)


def plan_step(sittings: Sequence[Sitting], cost: StepCost, limits: StepLimits) -> StepPlan:
    """The next step; empty only where nobody sits. Its parts have a share each in the base."""
    order = sorted(sittings, key=lambda s: (s.turn, s.sequence.unread > 0))
    if order:
        order = order[:1] if order[0].alone else [sitting for sitting in order if not sitting.alone]
    chosen: list[tuple[Sitting, Part, float]] = []
    base = added = 0.0
    tokens = 0
    for sitting in order:
        if limits.sequences is not None and len(chosen) >= limits.sequences:
            break
        sequence = sitting.sequence
        own = cost.read.base if sequence.unread > 0 else cost.step.base
        left_ms = limits.ms - max(base, own) - added
        room = math.inf if limits.tokens is None else limits.tokens - tokens
        if sequence.unread > 0:
            read = _read(sequence, cost, left_ms, room, must=not chosen)
            ms = cost.reading(sequence.read, sequence.read + read)
        else:
            read, ms = 0, cost.making(sequence)
        if chosen and (room < 1 or (read == 0 and (sequence.unread > 0 or ms > left_ms))):
            continue
        chosen.append((sitting, Part(sequence, read), ms))
        base, added, tokens = max(base, own), added + ms, tokens + max(read, 1)
    each = base / len(chosen) if chosen else 0.0
    return StepPlan(
        sittings=tuple(sitting for sitting, _, _ in chosen),
        parts=tuple(part for _, part, _ in chosen),
        shares=tuple(ms + each for _, _, ms in chosen),
        cost_ms=base + added,
    )


def lessons(plan: StepPlan, cost: StepCost) -> list[Lesson]:
    """What the step's time will be true for, taken before it runs.

    One that both reads and makes teaches both, each what would have been expected of it alone, times the same factor as
    the whole. Where that is wrong, steps that only do one of them tell, and the other learns the rest.
    """
    if not plan.cost_ms > 0:
        return []
    reads = [part for part in plan.parts if part.read]
    makes = [part.sequence for part in plan.parts if not part.read]
    found = []
    if reads:
        begun = [part.sequence.read for part in reads]
        ends = [part.sequence.read + part.read for part in reads]
        ms = cost.read.base + sum(map(cost.reading, begun, ends))
        found.append(Lesson(Pass.READ, ends, begun, part=ms / plan.cost_ms))
    if makes:
        ms = cost.step.base + sum(map(cost.making, makes))
        found.append(Lesson(Pass.STEP, [one.read + one.made for one in makes], part=ms / plan.cost_ms))
    return found if len(found) > 1 else [replace(one, part=1.0) for one in found]


def new_pieces(sittings: Sequence[Sitting]) -> list[Piece]:
    """What these sequences have said since they were last asked, of those that are to be told as they come."""
    pieces = []
    for sitting in sittings:
        said, entry = sitting.sequence.said, sitting.seat.entry
        if len(said) > sitting.told and getattr(entry.work.options, "stream", False):
            pieces.append(Piece(entry.work.id, entry.item.index, sitting.told, said[sitting.told :]))
            sitting.told = len(said)
    return pieces


def _read(sequence: TokenSequence, cost: StepCost, left_ms: float, room: float, *, must: bool) -> int:
    """How many tokens of its prompt a sequence reads now; 0 if what is left is too little for a part."""
    unread = sequence.unread
    fits = int(min(unread, room, cost.readable(sequence.read, left_ms)))
    least = min(LEAST_READ, unread)
    if fits >= least:
        return fits
    return min(least, max(1, int(min(room, unread)))) if must else 0
