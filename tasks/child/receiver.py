"""Reads the parent's frames and feeds the engine. A fresh job with its inputs goes straight in."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from catalog.errors import RoostError
from catalog.live import LiveCatalog
from engine.engine import Engine
from engine.errors import LoadFailed, LoadReason
from engine.types import Work
from tasks.child.claimer import Claimer
from tasks.child.fetcher import Fetcher
from tasks.child.hand import Hand, Held
from tasks.child.inbox import Arrival
from tasks.child.intake import to_work
from tasks.child.reporter import Reporter
from tasks.child.seeker import Seeker
from tasks.errors import AllItemsFailed
from tasks.inputs import read_inputs
from tasks.messages import unpack

log = logging.getLogger(__name__)


class Receiver:
    """Dispatches frames; `frame` returns False once the parent has asked for the end."""

    def __init__(
        self,
        catalog: LiveCatalog,
        engine: Engine,
        hand: Hand,
        reporter: Reporter,
        send: Callable[..., None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self._engine = engine
        self._hand = hand
        self._reporter = reporter
        self._send = send
        self._clock = clock
        self._closing = False
        self.losses: dict[str, int] = {}
        self.claimer: Claimer | None = None
        self.seeker: Seeker | None = None
        self.fetcher: Fetcher | None = None

    def frame(self, frame: Sequence[Any]) -> bool:
        """Act on one frame."""
        match frame:
            case ["jobs", jobs]:
                self._jobs(jobs)
            case ["cancel", ids]:
                self.cancel(ids)
            case ["hung", models, limit_s]:
                self._hung(models, limit_s)
            case ["losses", losses]:
                self.losses.update(losses)
            case ["handback"]:
                self._hand_back()
            case ["stop"]:
                return False
            case _:
                log.error("unknown frame %r", frame[0] if frame else None)
        return True

    def _jobs(self, jobs: Sequence[Sequence[Any]]) -> None:
        received = time.time()
        arrivals: list[Arrival] = []
        unmet: list[Arrival] = []
        for key, message, lost in jobs:
            try:
                arrival = Arrival(key, unpack(message), int(lost), received)
            except ValueError as error:
                log.warning("message %s dropped: %s", key, error)
                self._reporter.dropped([key])
                continue
            (unmet if self._catalog.must_ask(arrival.job.model) else arrivals).append(arrival)
        if unmet and self.seeker is not None:
            self.seeker.put(unmet)
        self.sort(arrivals)

    def sort(self, arrivals: Sequence[Arrival]) -> None:
        """Claim those that must be, and run the others."""
        slow = [arrival for arrival in arrivals if arrival.needs_claim or arrival.needs_rest]
        fresh = [arrival for arrival in arrivals if not (arrival.needs_claim or arrival.needs_rest)]
        if slow and self.claimer is not None:
            self.claimer.put(slow)
        if fresh:
            self.admit(fresh)

    def fail(self, arrival: Arrival, error: RoostError) -> None:
        """End a job whose inputs cannot be had."""
        held = Held(arrival.job, [{}] * arrival.job.items, received=arrival.received, arrived=self._clock())
        if self._hand.add(arrival.key, held):
            self._reporter.refused(held, error)

    def give_back(self, keys: Sequence[str]) -> None:
        """Return the messages of jobs that cannot be had just now."""
        self._send("returned", list(keys))

    def admit(self, arrivals: Sequence[Arrival]) -> None:
        """Give these jobs to the engine; those that cannot run are ended with their reason.

        Those whose inputs are in the blob store come again once these are read.
        """
        works: list[Work] = []
        arrived = self._clock()
        if self._closing:
            self._send("returned", [a.key for a in arrivals])
            return
        apart = [arrival for arrival in arrivals if arrival.needs_blob]
        if apart and self.fetcher is not None:
            self.fetcher.put(apart)
            arrivals = [arrival for arrival in arrivals if not arrival.needs_blob]
        for arrival in arrivals:
            try:
                items = read_inputs(arrival.job.inputs)
            except ValueError as error:
                log.warning("job %s dropped, its inputs cannot be read: %s", arrival.key, type(error).__name__)
                self._reporter.dropped([arrival.key])
                continue
            held = Held(arrival.job, items, received=arrival.received, arrived=arrived)
            if not self._hand.add(arrival.key, held):
                continue
            try:
                work = to_work(arrival.job, items, self._catalog, arrived=arrived, wall=time.time())
            except RoostError as error:
                self._reporter.refused(held, error)
                continue
            if not work.items:
                self._reporter.refused(held, AllItemsFailed())
                continue
            works.append(work)
        if works and (untaken := self._engine.submit(works)):
            # A hand-back on another thread came between.
            self._hand.drop(untaken)
            self._send("returned", untaken)

    def cancel(self, ids: Sequence[str]) -> None:
        """Drop these jobs wherever they are; one that runs is dropped as soon as its batch ends."""
        waiting = self._take_back(ids)
        held = [key for key in ids if self._hand.ending(key) is not None]
        self._engine.cancel(held)
        if waiting or held:
            self._reporter.dropped([*waiting, *held])

    def _take_back(self, ids: Sequence[str] | None) -> list[str]:
        """Those of `ids`, or all, that wait for their rows or for their model."""
        places = [place for place in (self.seeker, self.claimer, self.fetcher) if place is not None]
        return [key for place in places for key in place.take_back(ids)]

    def _hung(self, models: Sequence[str], limit_s: float) -> None:
        for model in models:
            said = f"{model} was not loaded in {limit_s:g} s. Raise ROOST_LOAD_LIMIT_S if it needs longer."
            self._engine.refuse(model, LoadFailed(said, LoadReason.TIMEOUT))

    def _hand_back(self) -> None:
        self._closing = True
        waiting = self._take_back(None)
        unstarted = self._engine.hand_back()
        self._hand.drop(unstarted)
        self._send("returned", [*waiting, *unstarted])
