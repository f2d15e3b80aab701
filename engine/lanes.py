"""Lanes: threads that compute, one batch or step after the other, each taken from what waits at that moment.

There are two sets of them. The device's lanes run what is done on the device, the host's what the host's cores do
beside it (parsing, OCR); each set has a scheduler of its own, so that neither waits for the other. The host's have one
lane more than batches may have, so that a text is generated there while documents are read. A lane that is free never
waits for a batch to grow. The engine's lock is not held while anything runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from catalog.terms import Lane
from engine.adapters.base import Place
from engine.batcher import Bounds
from engine.costs import Pass
from engine.device import DeviceKind
from engine.errors import DeadlinePassed, DeviceLost
from engine.hand import Run
from engine.joining import Session
from engine.lending import Waiting, borrow
from engine.limits import lane_threads
from engine.means import Means
from engine.passes import Lesson, PassRan
from engine.runner import Came, run_batch
from engine.scheduler import Policy, Scheduler
from engine.seats import Claim
from engine.sessions import Sessions
from engine.types import Batch, Finished, Output, Work

log = logging.getLogger(__name__)

SHORT_MS = 25.0
"""A pass that is predicted to take less with a lane's own threads is left to these, also when it is alone.

On two cores a text of 60 tokens took 12.4 ms with one thread of torch and 13.5 ms with two, and a third more CPU.
"""

Turn = Run | tuple[Session, bool] | list[Finished]
"""A batch; a session's boundary, with a step or without; or works whose deadline has passed."""


class Lanes:
    """The lanes of one place, with what waits for them. Under the engine's lock but for `start` and `join`.

    `settled` is called when works or passes have gone. `others` are the lanes of the other places. Batches may have
    `count` lanes; on the host there is one more, for steps alone, since a batch there may take minutes.
    """

    def __init__(
        self, place: Place, count: int, policy: Policy, means: Means, settled: Callable[[], None], others: list[Lanes]
    ) -> None:
        self.place = place
        self.scheduler = Scheduler(policy, means.hand.ids)
        self.sessions = Sessions(self.scheduler, means, place, self._could_run)
        self._means = means
        self._count = count
        self._settled = settled
        self.others = others
        self._wake = threading.Condition(means.lock)
        self._waiting = Waiting(means)
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to compute."""
        for number in range(self._count + (self.place is Place.HOST)):
            lane = threading.Thread(target=self._serve, name=f"{self.place}-lane-{number}", daemon=True)
            self._threads.append(lane)
            lane.start()

    def join(self, until: float) -> None:
        """Wait for the lanes to end, until then at most."""
        for lane in self._threads:
            lane.join(max(0.0, until - self._means.clock()))

    def add(self, work: Work) -> None:
        """Take in a work of a model whose place this is."""
        known = self._means.roster[work.model]
        self.scheduler.add(work, known.group(work.verb, work.options))
        if known.stepped:
            self.sessions.expect(work.model)

    def drop(self, work_id: str) -> None:
        """Forget what waits of a work, or is generated for it."""
        work = self.scheduler.drop(work_id)
        if work is not None:
            self.settle_model(work.model)
        self.sessions.works_gone()

    def drop_model(self, model: str) -> list[Work]:
        """Forget all that waits for a model."""
        return self.scheduler.drop_model(model)

    def settle_model(self, model: str) -> None:
        """A model that nothing waits for any more is not wanted."""
        if not self.scheduler.waiting(model):
            self._means.residency.unwant(model)

    def wake(self) -> None:
        """Something may run now that could not before."""
        self._wake.notify()
        self._waiting.memory_back()

    def wake_all(self) -> None:
        """It may be time to end."""
        self._wake.notify_all()

    def _serve(self) -> None:
        """A lane thread: one turn after the other, asleep while there is none."""
        try:
            while True:
                turn = self._await()
                if turn is None:
                    return
                if isinstance(turn, Run):
                    self._compute(turn)
                elif isinstance(turn, list):
                    self._means.tell(turn)
                else:
                    session, step = turn
                    went_on = self.sessions.turn(session, step=step)
                    with self._means.lock:
                        # One that waits for memory would come again at once, and again.
                        if went_on:
                            self._settled()
                        else:
                            self.wake()
        # Not only Exception: a lane that ended without a word would be missed by nobody.
        except BaseException:
            log.exception("a lane met an error of the engine's own")
            self._means.lost(DeviceLost("The engine met an error of its own and cannot go on; the process restarts."))

    def _await(self) -> Turn | None:
        """The next turn; None when it is time to end."""
        means = self._means
        with means.lock:
            while means.hand.open:
                now = means.clock()
                late = self._expire(now)
                if late:
                    self._settled()
                    return late
                turn = self._next()
                if turn is not None:
                    return turn
                times = (self.scheduler.next_deadline(), self.sessions.next_time(now), self._bulk_from(now))
                until = min((at for at in times if at is not None), default=None)
                self._wake.wait(None if until is None else max(0.0, until - now))
        return None

    def _bulk_next(self) -> bool:
        """Whether a pass of the bulk lane leaves a lane free."""
        return self._means.hand.bulk(self.place) < max(1, self._count - 1)

    def _bulk_from(self, now: float) -> float | None:
        """When bulk work may have the last lane, too, that is kept free now for interactive work."""
        if self._bulk_next() or not (self.scheduler.items or self.sessions.sequences):
            return None
        return self.scheduler.expects_until(now)

    def _expire(self, now: float) -> list[Finished]:
        late: list[Finished] = []
        for work in self.scheduler.expire(now):
            late += self._means.hand.give_up(work.id, DeadlinePassed())
            self.settle_model(work.model)
            self.sessions.works_gone()
        for done in self.sessions.expire(now):
            late.append(done)
            self.settle_model(done.work.model)
        return late

    def _next(self) -> Run | tuple[Session, bool] | None:
        """Take the next turn from what waits, and what it needs to run."""
        untidy = self.sessions.untidy()
        if untidy is not None:
            return self.sessions.begin(untidy.model), False
        hand, held = self._means.hand, self.scheduler.holding
        if hand.alone or (not held and any(other.scheduler.holding for other in self.others)):
            return None
        chosen = self.scheduler.choose(
            self._ready,
            self.sessions.claims(),
            idle=not hand.running,
            now=self._means.clock(),
            bulk=self._bulk_next(),
        )
        if held and not self.scheduler.holding:
            for other in self.others:
                other.wake_all()
        if chosen is None:
            return None
        turn = (self.sessions.begin(chosen.model), True) if isinstance(chosen, Claim) else self._run(chosen)
        if self.scheduler.items or self.sessions.sequences:
            self._wake.notify()
        return turn

    def _run(self, batch: Batch) -> Run:
        """What a batch needs to run."""
        means, model, lengths = self._means, batch.model, [max(entry.item.length, 1) for entry in batch.entries]
        adapter = means.residency.lease(model, len(lengths))
        if adapter is None:
            raise RuntimeError(f"{model} was ready and cannot be leased")
        padded = not adapter.unpadded
        bounds = means.roster.bounds(model, padded)
        per_token = means.residency.per_token(model)
        lent, items = borrow(means.residency.book(model), model, per_token, lengths, bounds.computed(lengths))
        # Interactive work that comes beside a bulk batch finds cores of its own.
        shy = batch.lane is Lane.BULK and self.scheduler.expects(means.clock())
        threads, spec = means.threads(busy=shy or self._busy()), means.roster[model].spec
        few = lane_threads(means.limits, means.device)
        predicted = means.costs.predict(model, spec, lengths, padded=padded, threads=few)
        if threads > few and predicted >= SHORT_MS:
            predicted = means.costs.predict(model, spec, lengths, padded=padded, threads=threads)
        else:
            threads = few
        run = Run(replace(batch, padded=padded), self.place, adapter, lent, threads, predicted, padded)
        if items < len(lengths):
            run.items, run.lacking = max(1, items), 0 if items else per_token * max(lengths)
        means.hand.begin(run)
        self.settle_model(model)
        return run

    def _busy(self) -> bool:
        """Whether others compute beside a batch that is about to run, or could."""
        if self._means.device.kind is not DeviceKind.CPU:
            return False
        return bool(self._means.hand.running or self.sessions.sequences) or self._could_run()

    def _full(self) -> bool:
        """Whether batches have all the lanes that they may have."""
        means = self._means
        runs = [run for run in means.hand.running.values() if run.place is self.place]
        return (
            len(runs) >= self._count and sum(not means.roster[run.batch.model].stepped for run in runs) >= self._count
        )

    def _could_run(self) -> bool:
        """Whether a batch that waits could run now."""
        return any(self._ready(model) is not None for model in self.scheduler.models)

    def _ready(self, name: str) -> Bounds | None:
        """What the model's next batch may be, with the activation bytes that are free; None if it cannot have one."""
        means = self._means
        model = means.roster[name]
        if model.stepped or self._full() or not means.residency.available(name):
            return None
        adapter = means.residency.there(name)
        bounds = means.roster.bounds(name, padded=adapter is None or not adapter.unpadded)
        if adapter is not None and adapter.most_items:
            bounds = replace(bounds, items=min(bounds.items, adapter.most_items))
        per_token = means.residency.per_token(name)
        if not per_token:
            return bounds
        room = max(0, means.residency.book(name).lendable) // per_token
        if room < model.least and means.hand.running:
            return None
        return replace(bounds, tokens=min(bounds.tokens, max(room, model.least)))

    def _compute(self, run: Run) -> None:
        means = self._means
        if run.lacking:
            self._waiting.until_lent(run)
        began = means.start(run)
        try:
            came = run_batch(
                run.adapter,
                run.batch,
                clear=partial(means.device.clear, thorough=True),
                relieve=means.relief(run.batch.model),
                items=run.items,
            )
        except DeviceLost as error:
            # Lost first: no other lane may start on the device that is about to be given up.
            means.lost(error)
            with means.lock:
                means.hand.abandon(run)
                self._release(run)
            return
        with means.lock:
            ended = means.clock()
            done = means.hand.end(run, came.outcomes, began, ended)
            means.passes.add(_ran(run, came, ended - began), means.roster[run.batch.model].spec)
            if came.clean:
                means.roster.learned(run.batch.model)
            self._release(run)
        means.listener.batch_ended(run.batch, run.batch.entries)
        means.tell(done)

    def _release(self, run: Run) -> None:
        """A pass has ended: what it held goes back."""
        self._means.residency.book(run.batch.model).lend(-run.lent, run.batch.model)
        self._means.residency.release(run.batch.model)
        self._settled()


def _ran(run: Run, came: Came, seconds: float) -> PassRan:
    """The pass that a batch was. Items that could not be read cost nothing, and teach nothing."""
    lengths = [max(entry.item.length, 1) for entry in run.batch.entries]
    computed = [length for length, outcome in zip(lengths, came.outcomes, strict=True) if isinstance(outcome, Output)]
    return PassRan(
        model=run.batch.model,
        lengths=lengths,
        items=len(lengths),
        padded=run.padded,
        seconds=seconds,
        predicted_ms=run.predicted_ms,
        threads=run.threads,
        crowded=run.crowded,
        teaches=[Lesson(Pass.RUN, computed)] if came.clean and computed else (),
    )
