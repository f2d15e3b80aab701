"""The Celery parent of a device: it stands between the broker's messages and the engine child, and owns neither's work.

It outlives broker connections: while there is none, the child works on, and what it finishes is acked later. It
outlives children: what one held is given to the next, with what is known of each job's fate, unless that one dies
before it is ready: then other workers may have it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from celery.worker import state
from kombu.asynchronous import Hub

from catalog.terms import Lane
from tasks.celery import RoostApp
from tasks.plan import Plan
from tasks.survey import Choice, Survey
from tasks.worker import CHILD_LOST, REFUSED
from tasks.worker.beat import Beat
from tasks.worker.delivery import Delivery, delivery_of
from tasks.worker.holding import FRESH, Held, Holding
from tasks.worker.link import CHILD, EngineLink
from tasks.worker.neighbours import Neighbours
from tasks.worker.request import JobRequest
from tasks.worker.rooms import Limits

log = logging.getLogger(__name__)

_TICK_S = 0.25
_LOOK_S = 0.02
_GOODBYE_S = 3.0
_DIED = "died"
_HUNG_S = 600.0
"""For so long a model whose load hung is not tried again by the next children."""
UNAVAILABLE = frozenset({"model_load_failed", "model_too_large", "model_not_found"})
"""With one of these errors a job ends whose model this worker cannot have; another one may."""

_EVENTS_AT_ONCE, _EVENTS_S = 512, 0.1


class Parent:
    """Runs on the message loop's thread alone."""

    def __init__(self, app: RoostApp, name: str) -> None:
        settings = app.settings
        self.holding: Holding[JobRequest] = Holding(Limits(settings.pull_ms, settings.pull_jobs, settings.lanes))
        self._settings = settings
        self._link = EngineLink(
            app.child or CHILD,
            name,
            on_frame=self._frame,
            on_started=self._child_started,
            on_lost=self._child_lost,
        )
        self.neighbours = Neighbours(name, self.holding)
        self._delivery: Delivery | None = None
        self._connected = False
        self._eventer: Any = None
        self._hub: Hub | None = None
        self._next_look: Any = None
        self._late: list[tuple[JobRequest, str, float, str | None]] = []
        self._unsent: list[tuple[str, bytes, int]] = []
        self._cancelled: set[str] = set()
        self._hung: dict[str, float] = {}
        self._lost: Counter[str] = Counter()
        self._fate = _DIED
        self._beat = Beat(settings.redis_url, name)
        self._child, self._unsaid = 0, 0
        self._ready_by = 0.0
        self._handed_back = False
        self._room_made = False

    def start(self) -> None:
        """Start the child. Nothing is pulled before it is ready."""
        self._link.start()

    def attach(self, consumer: Any) -> None:
        """Work over this connection, which may be the first or one of many."""
        hub: Hub = consumer.hub
        earlier, self._delivery = self._delivery, delivery_of(consumer.task_consumer.channel, self)
        late, self._late = self._late, []
        owners = [*(one.owner for one in self.holding), *(owner for owner, *_ in late)]
        self._delivery.adopt([owner.message for owner in owners], earlier)
        for owner in owners:
            owner.eventer = consumer.event_dispatcher
            state.task_reserved(owner)
        self._eventer = consumer.event_dispatcher
        if self._eventer is not None:
            # Celery would publish after each turn of the loop; each publish takes longer than a job.
            self._eventer.on_send_buffered, self._eventer.buffer_limit = None, _EVENTS_AT_ONCE
        self._link.register(hub)
        hub.on_tick.add(self._flush)
        hub.call_repeatedly(_TICK_S, self._tick)
        hub.call_repeatedly(_EVENTS_S, self._send_events)
        self._hub, self._next_look = hub, None
        self._look_soon()
        self._connected = True
        self.neighbours.tell(self._delivery, time.monotonic())
        for owner, status, runtime_s, code in late:
            owner.conclude(status, runtime_s, code)

    def detach(self) -> None:
        """The connection is gone and another will come; until then `idle` is called instead of the message loop."""
        self._connected = False
        self._eventer = None
        self._hub = self._next_look = None
        self._link.unregister()

    def idle(self) -> None:
        """See to the child while there is no message loop."""
        self._link.pump(0.0)
        self._flush()
        self._tick()

    @property
    def listening(self) -> bool:
        """Whether a bell should wake us: with a busy device it is for others, and we look by ourselves in time."""
        return self.holding.open and self.holding.idle

    @property
    def wanting(self) -> bool:
        """Whether to look now."""
        return self.holding.wants(time.monotonic())

    @property
    def doubting(self) -> bool:
        """Whether something waits that no bell tells of: it was left to others, or it had no room before."""
        return self._room_made or self.neighbours.doubting(time.monotonic())

    @property
    def name(self) -> str:
        """The worker's name."""
        return self.neighbours.name

    @property
    def choosing(self) -> bool:
        """Whether it matters which models a pull takes: to other workers, or to our own room for absent ones."""
        return self.holding.mixed or not self.neighbours.alone

    def plan(self, queues: Sequence[str], turn: int) -> Plan:
        """What to pull now."""
        return self.holding.plan(queues, turn, shy=self.holding.shy(time.monotonic()))

    def choose(self, plan: Plan, survey: Survey) -> Choice:
        """What of it to take, given where the models are."""
        self._room_made = False
        return self.neighbours.choose(plan, survey, time.monotonic())

    def pulled(self) -> None:
        """Give the child what came. Not at the end of the turn: Celery sends its events before that."""
        self._room_made = False
        self._flush()
        self._look_soon()
        if self._delivery is not None:
            self.neighbours.tell_changes(self._delivery, time.monotonic())

    def receive(self, held: Held[JobRequest]) -> None:
        """Take a job in hand; it goes to the child with all that came with it."""
        self.holding.add(held)
        if held.lane is Lane.INTERACTIVE:
            self.holding.saw_interactive(time.monotonic())
        if self._link.alive:
            self._unsent.append((held.id, held.data, held.lost))

    def cancel(self, ids: Iterable[str]) -> int:
        """Drop these jobs, as far as they are here; how many are."""
        here = [key for key in ids if self.holding.get(key) is not None]
        if here:
            self._flush()
            self._cancelled.update(here)
            self._link.send("cancel", here)
        return len(here)

    def hand_back(self, *, wait: bool) -> None:
        """Stop pulling, return what has not started, and wait for what runs, within limits. Once."""
        if self._handed_back:
            return
        self._handed_back = self._link.closing = True
        self._link.unregister()
        if self._delivery is not None:
            self._delivery.pause()
            self.neighbours.leave(self._delivery)
        if wait and self._link.alive and self.holding.ready:
            self._flush()
            self._link.send("handback")
            self._await_child()
        if len(self.holding):
            if self._link.alive:
                self._link.end("the worker ends before its work does", _GOODBYE_S)
            self._give_back(list(self.holding))
        self._keep()

    def close(self) -> None:
        """End the child, without manners if it is still starting and so does not listen."""
        self._link.unregister()
        self._link.close(_GOODBYE_S if self.holding.ready else 0.0)

    def _await_child(self) -> None:
        end = time.monotonic() + self._settings.shutdown_s
        renewed = time.monotonic()
        while len(self.holding) and self._link.alive and state.should_terminate is None:
            now = time.monotonic()
            if now >= end:
                return
            self._link.pump(min(_TICK_S, end - now))
            self._tick()
            if now - renewed > self._settings.held_lease_s / 4:
                renewed = now
                self._keep()

    def _keep(self) -> None:
        if self._delivery is None:
            return
        try:
            self._delivery.keep()
            self._send_events()
        except Exception as error:  # noqa: BLE001 - the broker is away; leases and the sweeper see to the rest
            log.warning("acks not sent: %s", type(error).__name__)

    def _send_events(self) -> None:
        if self._eventer is not None:
            self._eventer.flush()

    def _frame(self, frame: Sequence[Any]) -> None:
        now = time.monotonic()
        match frame:
            case ["done", rows]:
                for key, status, runtime_s, code in rows:
                    self._done(key, status, runtime_s, code)
                self._reconsider()
            case ["started", batch, ids, limit_s]:
                for fresh in self.holding.batch_started(batch, ids, limit_s, now):
                    fresh.owner.on_accepted(self._link.pid, now)
            case ["ended", batch]:
                self.holding.batch_ended(batch, now)
            case ["loading", model, limit_s]:
                self.holding.load_started(model, limit_s, now)
            case ["loaded", model]:
                self.holding.load_ended(model)
            case ["beside", models]:
                self.holding.beside(models)
            case ["residents", models]:
                self.neighbours.residents(models)
                self.holding.residents(models)
                self._room_made = True
                self._reconsider()
            case ["knows", models, more]:
                self.neighbours.knows(models, more=more)
            case ["unable", models]:
                self.neighbours.unable(models)
            case ["returned", ids]:
                self._give_back([held for key in ids if (held := self.holding.get(key)) is not None])
                self._reconsider()
            case ["ready", pid, lanes]:
                log.info("engine child %d is ready, with %d lanes", pid, lanes)
                self.holding.child_ready(lanes)
                self._link.started_well()
            case ["refused", code, message]:
                self._refused(code, message)
            case ["lost", reason]:
                self._end_child("device", f"it lost its device: {reason}")
            case _:
                log.error("unknown frame %r from the engine child", frame[0] if frame else None)

    def _refused(self, code: str, message: str) -> None:
        """The first child's refusal ends the worker. After one that worked it is tried again: a device may return."""
        log.critical("the engine cannot start: %s: %s", code, message)
        if not self._link.proved:
            self._link.closing = True
            state.should_stop = REFUSED

    def _done(self, key: str, status: str, runtime_s: float, code: str | None) -> None:
        held = self.holding.remove(key)
        if held is None:
            return
        self._cancelled.discard(key)
        # One whose model is not there leaves its place to others of such models.
        self._room_made = self._room_made or not held.started
        if code in UNAVAILABLE:
            self.neighbours.failed(held.model, time.monotonic())
        if self._connected:
            held.owner.conclude(status, runtime_s, code)
        else:
            # Neither an ack nor an event would arrive; both follow with the next connection.
            self._late.append((held.owner, status, runtime_s, code))

    def _reconsider(self) -> None:
        if self._delivery is not None and not self._handed_back:
            self._delivery.reconsider()

    def _look_soon(self) -> None:
        """Look at the queues again and again while no bell may tell of what is there.

        One that holds nothing and has no neighbours hears of everything, and sleeps until it does.
        """
        if self._next_look is None and self._hub is not None and (len(self.holding) or not self.neighbours.alone):
            self._next_look = self._hub.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._next_look = None
        self._reconsider()
        self._look_soon()

    def _give_back(self, jobs: Sequence[Held[JobRequest]]) -> None:
        """Return messages to their queues: untouched ones as they came, others marked, so that their row is read."""
        for held in jobs:
            self.holding.remove(held.id)
            self._cancelled.discard(held.id)
            held.owner.forget()
        self._room_made = True
        if self._delivery is None:
            return
        for marked in (True, False):
            messages = [one.owner.message for one in jobs if (one.started or one.lost != FRESH) is marked]
            try:
                self._delivery.restore(messages, marked=marked)
            except Exception as error:  # noqa: BLE001 - their leases end, and they return by themselves
                log.warning("%d messages not returned: %s", len(messages), type(error).__name__)

    def _flush(self) -> None:
        if self._unsent:
            jobs, self._unsent = self._unsent, []
            self._link.send("jobs", jobs)

    def _tick(self) -> None:
        self._link.tick()
        now = time.monotonic()
        if self._connected and self._delivery is not None:
            self.neighbours.tell(self._delivery, now)
            self._say_lost(self._unsaid)
            self._reconsider()
            self._look_soon()
        if overdue := self.holding.overdue(now):
            self._end_child("limit", f"over its limit: {', '.join(overdue)}")
        elif self._link.alive and not self.holding.ready and now > self._ready_by:
            self._end_child("start", "it was not ready in time")

    def _end_child(self, fate: str, why: str) -> None:
        self._fate = fate
        self._link.kill(why)
        self._say_lost(self._child)

    def _say_lost(self, pid: int) -> None:
        """Say in the beat of a child that it is lost, until the next one beats; in a while if it cannot be said now."""
        if pid:
            self._unsaid = 0 if self._beat.lost(pid) else pid

    def _child_started(self) -> None:
        self._child = self._link.pid
        if self._lost:
            self._link.send("losses", dict(self._lost))
        self._ready_by = time.monotonic() + self._settings.load_limit_s
        self._hung = {model: until for model, until in self._hung.items() if until > time.monotonic()}
        if self._hung:
            self._link.send("hung", sorted(self._hung), self._settings.load_limit_s)
        self._unsent = [(held.id, held.data, held.lost) for held in self.holding]
        self._flush()
        if self._cancelled:
            self._link.send("cancel", sorted(self._cancelled))

    def _child_lost(self, reason: str) -> None:
        now = time.monotonic()
        self._lost[self._fate] += 1
        self._fate = _DIED
        was_ready = self.holding.ready
        # A load that hangs would end each child in turn, and all other models with it.
        self._hung |= dict.fromkeys(self.holding.hung(now), now + _HUNG_S)
        jobs = self.holding.child_lost(now)
        self.neighbours.residents({})
        self._unsent = []
        log.error("%s, %d jobs in hand: %s", CHILD_LOST, len(jobs), reason)
        # Again if it was said when the child was killed: a last beat of its own may have come after that.
        if self._handed_back:
            self._beat.gone(self._child)
        else:
            self._say_lost(self._child)
        if not was_ready:
            # The next one may not get ready either, and what we hold no other worker can run.
            self._give_back(jobs)
