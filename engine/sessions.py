"""Models that work step by step: their sequences join and leave between two steps, and others have the device there.

A session is one such model with sequences. While it has any it holds a lease, so that the model stays; a model that is
to leave gets no new sequences, and its lease ends with the last one. A sequence is lent its cache for all the tokens it
may come to, before its first step. One lane at a time has a session's turn: the calls to its adapter never overlap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from catalog.terms import Lane
from engine.adapters.base import Place, StepAdapter, TokenSequence
from engine.costs import Pass
from engine.errors import DeadlinePassed, DeviceLost, OutOfMemory
from engine.failures import device_lost
from engine.hand import Run
from engine.means import Means
from engine.passes import Lesson, PassRan
from engine.runner import of_item
from engine.scheduler import Scheduler
from engine.seats import Claim, claim
from engine.stepping import LEAST_READ, Sitting, StepCost, StepLimits, StepPlan, lessons, plan_step
from engine.steprunner import Stepped, run_step
from engine.types import Batch, Finished

log = logging.getLogger(__name__)

_JOINS = 8
"""Sequences that join before one step at most: reading a prompt's text takes the host some time."""


@dataclass(slots=True)
class Session:
    """One model's sequences. `pending` has come and waits for memory; `blocked` until some is given back.

    `stale` says that a work of its has gone. While it is `busy` a lane has its turn.
    """

    model: str
    limits: StepLimits
    adapter: StepAdapter | None = None
    sittings: list[Sitting] = field(default_factory=list)
    pending: Sitting | None = None
    blocked: bool = False
    stale: bool = False
    busy: bool = False
    turn: int = 0
    good: int = 0

    @property
    def all(self) -> list[Sitting]:
        """Those that sit, and the one that waits to."""
        return self.sittings if self.pending is None else [*self.sittings, self.pending]


class Sessions:
    """The sessions of one device, as its lanes use them. Under the engine's lock but for `turn` and `close`."""

    def __init__(self, scheduler: Scheduler, means: Means, place: Place, others: Callable[[], bool]) -> None:
        """`others` tells whether a batch could run beside a step."""
        self._others = others
        self._scheduler = scheduler
        self._means = means
        self._place = place
        self._of: dict[str, Session] = {}

    @property
    def sequences(self) -> int:
        """How many sequences are being generated."""
        return sum(len(session.sittings) for session in self._of.values())

    @property
    def open(self) -> bool:
        """Whether any session holds its model."""
        return any(session.adapter is not None for session in self._of.values())

    def expect(self, model: str) -> None:
        """Works come for a model that works step by step."""
        if model not in self._of:
            self._of[model] = Session(model, StepLimits(self._means.limits.step_ms))

    def claims(self) -> list[Claim]:
        """The steps that could run now."""
        return [found for session in self._of.values() if (found := self._claim(session)) is not None]

    def begin(self, model: str) -> Session:
        """Give a session's turn to the lane that calls; it calls `turn` next."""
        session = self._of[model]
        session.busy = True
        return session

    def untidy(self) -> Session | None:
        """A session of which sequences have to leave and whose turn nobody has."""
        return next((s for s in self._of.values() if s.stale and not s.busy), None)

    def works_gone(self) -> None:
        """Works were dropped: their sequences leave at the next boundary."""
        for session in self._of.values():
            session.stale = session.stale or session.busy or bool(session.all)

    def memory_back(self) -> None:
        """Memory was given back: who waits for some may try again."""
        for session in self._of.values():
            session.blocked = False

    def expire(self, now: float) -> list[Finished]:
        """End the works whose deadline has passed while they were generated."""
        done: list[Finished] = []
        for session in self._of.values():
            for sitting in session.all:
                work = sitting.seat.entry.work
                if work.deadline is not None and work.deadline <= now and self._means.hand.holds(sitting.seat.entry):
                    self._scheduler.drop(work.id)
                    done += self._means.hand.give_up(work.id, DeadlinePassed())
        if done:
            self.works_gone()
        return done

    def next_deadline(self) -> float | None:
        """The earliest deadline of a work that is being generated."""
        entries = (sitting.seat.entry for session in self._of.values() for sitting in session.all)
        return min((e.work.deadline for e in entries if e.work.deadline is not None), default=None)

    def turn(self, session: Session, *, step: bool) -> None:
        """A session's boundary: who has gone leaves, who can joins; then one step, if it was chosen."""
        means = self._means
        try:
            self._leave(session, self._gone(session))
            if step:
                means.tell(self._join(session))
                self._step(session)
        except DeviceLost as error:
            means.lost(error)
        finally:
            with means.lock:
                session.busy = False
                self._close_if_empty(session)

    def close(self) -> None:
        """All sequences leave, as far as no lane is in a step with them."""
        for session in self._of.values():
            if session.busy or session.adapter is None:
                continue
            with self._means.lock:
                everybody = session.all
            self._leave(session, everybody)
            with self._means.lock:
                self._close_if_empty(session)

    def _claim(self, session: Session) -> Claim | None:
        if session.busy or session.blocked:
            return None
        cost, ready = self._cost(session), session.sittings or session.all
        if ready:
            plan = plan_step(ready, cost, self._limits(session, cost))
            return claim(session.model, [sitting.seat for sitting in plan.sittings], plan.cost_ms)
        if self._scheduler.waiting(session.model) and self._means.residency.available(session.model):
            return self._scheduler.first_claim(
                session.model, lambda item: min(session.limits.ms, cost.read.batch(1, max(item.length, 1)))
            )
        return None

    def _limits(self, session: Session, cost: StepCost) -> StepLimits:
        """What a step may be: one of bulk work alone gives way as bulk batches do."""
        if any(sitting.seat.entry.work.lane is Lane.INTERACTIVE for sitting in session.all):
            return session.limits
        most_ms = self._scheduler.bulk_ms(max(cost.read.base, cost.step.base), self._means.clock())
        return replace(session.limits, ms=min(session.limits.ms, most_ms))

    def _cost(self, session: Session) -> StepCost:
        model, costs = session.model, self._means.costs
        spec, threads = self._means.roster[model].spec, self._means.threads(busy=self._busy(session))
        read = costs.coefficients(model, spec, Pass.READ, threads)
        return StepCost(read, costs.coefficients(model, spec, Pass.STEP, threads))

    def _gone(self, session: Session) -> list[Sitting]:
        with self._means.lock:
            session.stale = False
            return [s for s in session.all if not self._means.hand.holds(s.seat.entry)]

    def _leave(self, session: Session, leaving: list[Sitting]) -> None:
        """These sequences end here: their caches go back, first to the device and then to the account."""
        if not leaving or session.adapter is None:
            return
        for sitting in leaving:
            try:
                session.adapter.leave(sitting.sequence)
            except Exception as error:
                lost = device_lost(error)
                if lost is not None:
                    raise lost from error
                log.exception("a sequence of %s did not leave well", session.model)
        with self._means.lock:
            for sitting in leaving:
                self._scheduler.leave(sitting.seat)
                if sitting is session.pending:
                    session.pending = None
                else:
                    session.sittings.remove(sitting)
                    self._means.residency.book(session.model).lend(-sitting.cache, session.model)
            self.memory_back()

    def _join(self, session: Session) -> list[Finished]:
        """Seat what waits, as far as there is memory; the works that end here because an item cannot be read."""
        done: list[Finished] = []
        for _ in range(_JOINS):
            if session.pending is None and not self._next(session, done):
                break
            if session.pending is not None and not self._seat(session, session.pending, done):
                break
        return done

    def _next(self, session: Session, done: list[Finished]) -> bool:
        """Make the next item of the model a sequence, pending. False if there is none that may come now."""
        means = self._means
        with means.lock:
            if session.adapter is None:
                adapter = means.residency.lease(session.model)
                if not isinstance(adapter, StepAdapter):
                    return False
                session.adapter = adapter
            elif means.residency.there(session.model) is None:
                return False
            adapter = session.adapter
            seat = self._scheduler.join(session.model)
            if seat is None:
                return False
            if not self._scheduler.waiting(session.model):
                means.residency.unwant(session.model)
        try:
            sequence = adapter.join(seat.entry)
        # Not only Exception: panics of Rust libraries and exits are none.
        except BaseException as error:
            lost = device_lost(error)
            if lost is not None:
                raise lost from error
            sequence = of_item(error, session.model)
        with means.lock:
            if isinstance(sequence, TokenSequence):
                session.pending = Sitting(sequence, seat, turn=session.turn)
            else:
                self._scheduler.leave(seat)
                done += means.hand.put(seat.entry, sequence)
        return True

    def _seat(self, session: Session, pending: Sitting, done: list[Finished]) -> bool:
        """Lend the pending sequence its cache. False if it has to wait for that."""
        means, ledger = self._means, self._means.residency.book(session.model)
        sequence = pending.sequence
        need = means.residency.cache_per_token(session.model) * (sequence.prompt + sequence.most)
        while True:
            with means.lock:
                # Caches leave alone what every model that is there needs to run a batch.
                room = min(ledger.lendable, -ledger.excess - ledger.lent)
                if not need or (need <= room and ledger.try_lend(need, session.model)):
                    pending.cache = need
                    session.sittings.append(pending)
                    session.pending = None
                    return True
                if ledger.lent or session.sittings:
                    session.blocked = not session.sittings
                    return False
            # Nobody has anything to give back: make room, or the sequence never runs.
            if not means.residency.relieve(session.model):
                break
        error = OutOfMemory(
            f"{sequence.prompt} tokens and {sequence.most} new ones take {need} bytes of cache in {session.model}; the "
            f"device has {max(room, 0)}. Ask for fewer tokens, or raise ROOST_BUDGET."
        )
        self._leave(session, [pending])
        with means.lock:
            done += means.hand.put(pending.seat.entry, error)
        return True

    def _step(self, session: Session) -> None:
        """One step of those that sit, whoever of them the plan takes."""
        means, adapter = self._means, session.adapter
        if adapter is None:
            return
        with means.lock:
            planned = self._plan(session, adapter)
        if planned is None:
            return
        plan, run, teaches = planned
        began = means.start(run)
        try:
            came = run_step(
                adapter,
                plan.parts,
                clear=partial(means.device.clear, thorough=True),
                relieve=means.relief(session.model),
            )
        except DeviceLost as error:
            # Lost first: no other lane may start on the device that is about to be given up.
            means.lost(error)
            with means.lock:
                means.hand.abandon(run)
                means.residency.book(session.model).lend(-run.lent, session.model)
            return
        ended = means.clock()
        over = [sitting for sitting, outcome in zip(plan.sittings, came.outcomes, strict=True) if outcome is not None]
        self._leave(session, over)
        with means.lock:
            means.residency.book(session.model).lend(-run.lent, session.model)
            self.memory_back()
            self._learn(session, came)
            done = means.hand.end(run, came.outcomes, began, ended)
            ran = PassRan(
                model=session.model,
                lengths=[max(part.read, 1) for part in plan.parts],
                items=len(over),
                padded=False,
                seconds=ended - began,
                predicted_ms=plan.cost_ms,
                threads=run.threads,
                crowded=run.crowded,
                teaches=teaches if came.clean else (),
            )
            means.passes.add(ran, means.roster[session.model].spec)
        means.listener.batch_ended(run.batch, [sitting.seat.entry for sitting in over])
        means.tell(done)

    def _plan(self, session: Session, adapter: StepAdapter) -> tuple[StepPlan, Run, list[Lesson]] | None:
        """The next step with what it needs to run; None if it cannot run now."""
        means = self._means
        if not session.sittings or not means.hand.open or means.hand.alone:
            return None
        cost = self._cost(session)
        limits, per_token = self._limits(session, cost), means.residency.per_token(session.model)
        if per_token:
            room = max(0, means.residency.book(session.model).lendable) // per_token
            if room < LEAST_READ and means.hand.running:
                session.blocked = True
                return None
            limits = replace(limits, tokens=min(limits.tokens or room, max(room, LEAST_READ)))
        plan = plan_step(session.sittings, cost, limits)
        if plan.alone and means.hand.running:
            return None
        book = means.residency.book(session.model)
        if not book.try_lend(per_token * plan.tokens, session.model):
            # The refusal has brought the account's word up to date.
            room = max(0, book.lendable) // per_token
            plan = plan_step(session.sittings, cost, replace(limits, tokens=max(room, LEAST_READ)))
            if not book.try_lend(per_token * plan.tokens, session.model):
                if means.hand.running:
                    session.blocked = True
                    return None
                book.lend(per_token * plan.tokens, session.model)
        session.turn += 1
        for sitting in plan.sittings:
            sitting.turn = session.turn
        self._scheduler.charge([(s.seat, ms) for s, ms in zip(plan.sittings, plan.shares, strict=True)])
        entries = tuple(sitting.seat.entry for sitting in plan.sittings)
        whole = sum(plan.shares)
        batch = Batch(
            next(means.hand.ids),
            session.model,
            entries[0].work.verb,
            entries,
            plan.alone,
            step=True,
            shares=tuple([ms / whole for ms in plan.shares]) if whole > 0 else (),
        )
        lent = per_token * plan.tokens
        threads = means.threads(busy=self._busy(session))
        run = Run(batch, self._place, adapter, lent, threads, plan.cost_ms, padded=False)
        means.hand.begin(run)
        return plan, run, lessons(plan, cost)

    def _busy(self, session: Session) -> bool:
        """Whether others compute beside a step of this session, or could."""
        if self._means.hand.running or any(s.sittings for s in self._of.values() if s is not session):
            return True
        return self._others()

    def _learn(self, session: Session, came: Stepped) -> None:
        session.good = session.good + 1 if came.clean else 0
        session.limits = session.limits.cut(*came.fitted) if came.fitted else session.limits.mended(session.good)

    def _close_if_empty(self, session: Session) -> None:
        """A session without sequences gives its lease back."""
        if session.adapter is not None and not session.all:
            session.adapter = None
            self._means.residency.release(session.model)
