"""Who joins a session and who leaves it: items become sequences, and are lent their caches before their first step.

Memory that is not there now is waited for while any may come free. Where the model itself is to leave, an item that
waits for memory goes back to the queue: the model would wait for it, and it for what comes in the model's place.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.adapters.base import StepAdapter, TokenSequence
from engine.errors import OutOfMemory
from engine.failures import device_lost
from engine.means import Means
from engine.runner import of_item
from engine.scheduler import Scheduler
from engine.stepping import Sitting, StepLimits
from engine.types import Finished

log = logging.getLogger(__name__)

JOINS = 8
"""Sequences that join before one step at most: reading a prompt's text takes the host some time."""

LOOK_S = 1.0
"""How often who waits for memory looks again by itself: not all that frees some is told."""


@dataclass(slots=True)
class Session:
    """One model's sequences. `pending` has come and waits for memory; `blocked` until then unless some is given back.

    `since` is when the pending one came. `stale` says that a work of its has gone. While `busy` a lane has its turn.
    """

    model: str
    limits: StepLimits
    adapter: StepAdapter | None = None
    sittings: list[Sitting] = field(default_factory=list)
    pending: Sitting | None = None
    since: float = 0.0
    blocked: float = -math.inf
    stale: bool = False
    busy: bool = False
    turn: int = 0
    good: int = 0

    @property
    def all(self) -> list[Sitting]:
        """Those that sit, and the one that waits to."""
        return self.sittings if self.pending is None else [*self.sittings, self.pending]

    def starves(self, now: float) -> bool:
        """Whether it has waited for memory for so long, and has nothing that runs, that others take no more."""
        return self.pending is not None and not self.sittings and now - self.since >= LOOK_S


class Joining:
    """Joins and departures of one device's sessions. Without the engine's lock, by the lane that has the turn."""

    def __init__(
        self,
        scheduler: Scheduler,
        means: Means,
        memory_back: Callable[[], None],
        yields: Callable[[Session], bool],
        alone: Callable[[Session], bool],
    ) -> None:
        """All are called under the lock: `memory_back` when caches were given back.

        `yields` tells whether a session is to take no memory, since another has waited for longer; `alone` whether no
        other holds its model.
        """
        self._yields = yields
        self._alone = alone
        self._scheduler = scheduler
        self._means = means
        self._memory_back = memory_back

    def join(self, session: Session) -> list[Finished]:
        """Seat what waits, as far as there is memory; the works that end here because an item cannot be read."""
        done: list[Finished] = []
        for _ in range(JOINS):
            if session.pending is None and not self._next(session, done):
                break
            if session.pending is not None and not self._seat(session, session.pending, done):
                break
        return done

    def leave(self, session: Session, leaving: list[Sitting]) -> None:
        """These sequences end here: their caches go back, first to the device and then to the account."""
        if not leaving or session.adapter is None:
            return
        for sitting in leaving:
            self._forget(session.adapter, sitting.sequence)
        with self._means.lock:
            for sitting in leaving:
                self._scheduler.leave(sitting.seat)
                if sitting is session.pending:
                    session.pending = None
                else:
                    session.sittings.remove(sitting)
                    self._means.residency.book(session.model).lend(-sitting.cache, session.model)
            self._memory_back()

    def block(self, session: Session) -> None:
        """Nothing to do until memory is given back, or it is time to look by itself. Under the lock."""
        session.blocked = self._means.clock() + LOOK_S

    def _next(self, session: Session, done: list[Finished]) -> bool:
        """Make the next item of the model a sequence, pending. False if there is none that may come now."""
        means = self._means
        with means.lock:
            if self._yields(session):
                return False
            if session.adapter is None:
                adapter = means.residency.lease(session.model)
                if not isinstance(adapter, StepAdapter):
                    return False
                session.adapter = adapter
            elif means.residency.there(session.model) is None:
                return False
            else:
                means.residency.use(session.model)
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
                session.pending, session.since = Sitting(sequence, seat, turn=session.turn), means.clock()
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
                if means.residency.there(session.model) is None or self._yields(session):
                    break
                # Caches leave alone what every model that is there needs to run a batch.
                room = min(ledger.lendable, -ledger.excess - ledger.lent)
                if not need or (need <= room and ledger.try_lend(need, session.model)):
                    pending.cache = need
                    session.sittings.append(pending)
                    session.pending = None
                    return True
                if session.sittings:
                    return False
                if ledger.lent and not session.starves(means.clock()):
                    self.block(session)
                    return False
            # Nobody has anything to give back: make room, or wait for what a load or a departure leaves.
            if means.residency.relieve(session.model):
                continue
            with means.lock:
                ever = ledger.fits_ever(ledger.held(session.model), need)
                moving = means.residency.moving()
                if moving:
                    # For as long as a load may take others are not kept from what memory there is.
                    session.since = means.clock()
                # Of two that only wait neither's model can leave, until the later one gives way.
                if ever and (moving or ledger.lent > 0 or bool(means.hand.running) or not self._alone(session)):
                    self.block(session)
                    return False
            self._fail(session, pending, need, room, done)
            return True
        self._put_back(session, pending)
        return False

    def _fail(self, session: Session, pending: Sitting, need: int, room: int, done: list[Finished]) -> None:
        """The pending sequence never gets its cache."""
        sequence = pending.sequence
        error = OutOfMemory(
            f"{sequence.prompt} tokens and {sequence.most} new ones take {need} bytes of cache in {session.model}; the "
            f"device has {max(room, 0)}. Ask for fewer tokens, or raise ROOST_BUDGET."
        )
        self.leave(session, [pending])
        with self._means.lock:
            done += self._means.hand.put(pending.seat.entry, error)

    def _put_back(self, session: Session, pending: Sitting) -> None:
        """Have the pending item wait in the queue, also for the model's return, should it leave."""
        if session.adapter is None:
            return
        self._forget(session.adapter, pending.sequence)
        means, work = self._means, pending.seat.entry.work
        with means.lock:
            session.pending = None
            if not means.hand.holds(pending.seat.entry):
                self._scheduler.leave(pending.seat)
                return
            self._scheduler.put_back(pending.seat, means.roster[session.model].group(work.verb, work.options))
            means.residency.want(session.model, work.lane)

    def _forget(self, adapter: StepAdapter, sequence: TokenSequence) -> None:
        try:
            adapter.leave(sequence)
        except Exception as error:
            lost = device_lost(error)
            if lost is not None:
                raise lost from error
            log.exception("a sequence of %s did not leave well", adapter.spec.id)
