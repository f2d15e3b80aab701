"""The engine's listener: turns what happens on the device into frames for the parent and endings for the committer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from catalog.errors import RoostError
from engine.errors import EngineError
from engine.types import Batch, Entry, Finished, Piece
from tasks.child.committer import Committer
from tasks.child.completion import of_error, of_finished
from tasks.child.endings import Ending
from tasks.child.hand import Hand, Held
from tasks.child.marker import Marker
from tasks.child.tally import Tally
from tasks.child.teller import Teller


class Reporter:
    """Called from engine threads. Everything here is quick but for the marking of a suspect job, which runs alone."""

    def __init__(
        self,
        hand: Hand,
        committer: Committer,
        send: Callable[..., None],
        *,
        worker: str,
        max_attempts: int,
        tally: Tally | None = None,
        beside: Callable[[str], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tally = tally or Tally()
        self._beside = beside
        self._hand = hand
        self._committer = committer
        self._send = send
        self._worker = worker
        self._max_attempts = max_attempts
        self._clock = clock
        self.marker: Marker | None = None
        self.teller: Teller | None = None

    def batch_started(self, batch: Batch, limit_s: float) -> None:
        """Tell the parent, so that it kills us if we hang, and mark what must be marked."""
        keys = list(dict.fromkeys(entry.work.id for entry in batch.entries))
        self._send("started", batch.id, keys, limit_s)
        fresh = self._hand.started(keys, self._clock())
        if fresh and self.marker is not None:
            self.marker.began(fresh)

    def batch_ended(self, batch: Batch, ended: Sequence[Entry]) -> None:
        """Tell the parent that the batch's limit is off, and followers how far their jobs have come."""
        self._send("ended", batch.id)
        if not batch.step:
            self._tally.batch(batch)
        unfinished = self._hand.ran(Counter(entry.work.id for entry in ended))
        if unfinished and self.marker is not None:
            self.marker.progressed(unfinished)

    def said(self, pieces: Sequence[Piece]) -> None:
        """Tell more of these texts to those who follow their jobs."""
        if self.teller is not None:
            self.teller.put(pieces)

    def load_started(self, model: str, limit_s: float) -> None:
        """Tell the parent, so that it kills us if the load hangs."""
        self._send("loading", model, limit_s)

    def load_ended(self, model: str) -> None:
        """Tell the parent that the load's limit is off."""
        self._send("loaded", model)

    def residents(self, models: Mapping[str, float]) -> None:
        """Tell the parent which models are here, so that it pulls their jobs before others."""
        self._send("beside", [model for model in models if self._beside(model)])
        self._send("residents", dict(models))

    def finished(self, done: Sequence[Finished]) -> None:
        """Hand complete works to the committer, all of one batch together."""
        wall, clock = time.time(), self._clock()
        endings = []
        for one in done:
            held = self._hand.ending(one.work.id)
            if held is None:
                continue
            completion = of_finished(
                held, one, wall=wall, clock=clock, worker=self._worker, max_attempts=self._max_attempts
            )
            endings.append(Ending(one.work.id, completion, max(0.0, wall - completion.started)))
        self._committer.put(endings)

    def refused(self, held: Held, error: RoostError) -> None:
        """End a job that never reached the device."""
        if self._hand.ending(str(held.job.id)) is None:
            return
        completion = of_error(held, error, wall=time.time(), worker=self._worker)
        self._committer.put([Ending(str(held.job.id), completion, 0.0)])

    def device_lost(self, error: EngineError) -> None:
        """Ask the parent for a restart; it sends again what we held."""
        self._send("lost", error.message)

    def committed(self, report: Sequence[tuple[str, str, float, str | None]]) -> None:
        """The committer's word that these are written: forget them and let the parent ack."""
        gone = [key for key, *_ in report]
        self._forget(gone)
        self._send("done", [list(row) for row in report])

    def dropped(self, keys: Sequence[str]) -> None:
        """These will not run: cancelled, ended elsewhere or held by a newer delivery. The parent acks them."""
        self._forget(keys)
        self._send("done", [[key, "dropped", 0.0, None] for key in keys])

    def _forget(self, keys: Sequence[str]) -> None:
        self._hand.drop(keys)
        if self.teller is not None:
            self.teller.forget(keys)
