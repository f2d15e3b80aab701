"""Models that work step by step: their sequences join and leave between two steps, and others have the device there.

A session is one such model with sequences. While it has any it holds a lease, so that the model stays; a model that is
to leave gets no new sequences, and its lease ends with the last one. A sequence is lent its cache for all the tokens it
may come to, before its first step. One lane at a time has a session's turn: the calls to its adapter never overlap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from catalog.terms import Lane
from engine.adapters.base import Place, StepAdapter
from engine.costs import Pass
from engine.errors import DeadlinePassed, DeviceLost
from engine.hand import Run
from engine.joining import Joining, Session
from engine.means import Means
from engine.passes import Lesson, PassRan
from engine.scheduler import Scheduler
from engine.seats import Claim, claim
from engine.stepping import LEAST_READ, Sitting, StepCost, StepLimits, StepPlan, lessons, new_pieces, plan_step
from engine.steprunner import Stepped, run_step
from engine.types import Batch, Finished


class Sessions:
    """The sessions of one device, as its lanes use them. Under the engine's lock but for `turn` and `close`."""

    def __init__(self, scheduler: Scheduler, means: Means, place: Place, others: Callable[[], bool]) -> None:
        """`others` tells whether a batch could run beside a step."""
        self._others = others
        self._scheduler = scheduler
        self._means = means
        self._place = place
        self._of: dict[str, Session] = {}
        self._joining = Joining(scheduler, means, self.memory_back, self._yields, self._alone)

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
        session.busy, session.blocked = True, -math.inf
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
            session.blocked = -math.inf

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

    def next_time(self, now: float) -> float | None:
        """When there may be something to do though nothing has happened.

        That is the earliest deadline of a work that is being generated, or when who waits for memory looks again.
        """
        entries = (sitting.seat.entry for session in self._of.values() for sitting in session.all)
        times = [entry.work.deadline for entry in entries if entry.work.deadline is not None]
        times += [session.blocked for session in self._of.values() if session.blocked > now]
        return min(times, default=None)

    def turn(self, session: Session, *, step: bool) -> bool:
        """A session's boundary: who has gone leaves, who can joins; then one step, if it was chosen.

        Whether anything may go on now; False if it only found that it has to wait for memory.
        """
        means = self._means
        try:
            self._joining.leave(session, self._gone(session))
            if step:
                means.tell(self._joining.join(session))
                self._step(session)
        except DeviceLost as error:
            means.lost(error)
        finally:
            with means.lock:
                session.busy = False
                self._close_if_empty(session)
        return session.blocked == -math.inf

    def close(self) -> None:
        """All sequences leave, as far as no lane is in a step with them."""
        for session in self._of.values():
            if session.busy or session.adapter is None:
                continue
            with self._means.lock:
                everybody = session.all
            self._joining.leave(session, everybody)
            with self._means.lock:
                self._close_if_empty(session)

    def _claim(self, session: Session) -> Claim | None:
        if session.busy or session.blocked > self._means.clock():
            return None
        cost, ready = self._cost(session), session.sittings or session.all
        if ready:
            plan = plan_step(ready, cost, self._limits(session, cost))
            return claim(session.model, [sitting.seat for sitting in plan.sittings], plan.cost_ms)
        if self._yields(session):
            return None
        if self._scheduler.waiting(session.model) and self._means.residency.available(session.model):
            return self._scheduler.first_claim(
                session.model, lambda item: min(session.limits.ms, cost.read.batch(1, max(item.length, 1)))
            )
        return None

    def _yields(self, session: Session) -> bool:
        """Whether another session starves, and came before what is pending here: small sequences let a large one by."""
        now, since = self._means.clock(), session.since if session.pending else math.inf
        return any(s.starves(now) and s.since < since for s in self._of.values() if s is not session)

    def _alone(self, session: Session) -> bool:
        """Whether no other session holds its model."""
        return all(s is session or s.adapter is None for s in self._of.values())

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
        self._joining.leave(session, over)
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
        if pieces := new_pieces(plan.sittings):
            means.listener.said(pieces)
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
                self._joining.block(session)
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
                    self._joining.block(session)
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
