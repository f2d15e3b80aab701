"""A job's events from its first to its last, over any number of connections."""

from __future__ import annotations

from collections import deque

from roost import asking
from roost.errors import ConnectionFailed
from roost.events import Event, EventReader, Heard
from roost.steps import Patience, Pause, Read, Steps, ask, backoff_s
from roost.wire import Broken, failure


class Following:
    """Comes back with Last-Event-ID when a connection ends before the job: nothing is told twice."""

    def __init__(self, job_id: str, patience: Patience) -> None:
        self._job_id = job_id
        self._patience = patience
        self._heard = Heard()
        self._ready: deque[Event] = deque()
        self._reader: EventReader | None = None
        self._over = False
        self._failures = 0
        self._since: float | None = None

    def next(self) -> Steps[Event | None]:
        """The next event; None after the last one. Raises ConnectionFailed, NotFound."""
        while not self._ready and not self._over:
            if self._reader is None:
                yield from self._connect()
            else:
                yield from self._more(self._reader)
        return self._ready.popleft() if self._ready else None

    def _connect(self) -> Steps[None]:
        reply = yield from ask(asking.get_events(self._job_id, self._heard.last_id), self._patience)
        if reply.status >= 400:
            raise failure(reply)
        # 204: the job has ended, and its last event was told.
        self._over = reply.status == 204
        self._reader = EventReader()

    def _more(self, reader: EventReader) -> Steps[None]:
        piece: bytes | Broken = yield Read()
        if isinstance(piece, Broken):
            yield from self._lost(piece)
            return
        self._failures, self._since = 0, None
        for event in reader.feed(piece):
            if (new := self._heard.new(event)) is not None:
                self._ready.append(new)
            if event.ended:
                self._over = True
                return

    def _lost(self, piece: Broken) -> Steps[None]:
        """The stream ended before the job: the process behind it went away, or its hour is over."""
        self._reader = None
        self._since = piece.at if self._since is None else self._since
        if piece.at - self._since > self._patience.seconds:
            raise ConnectionFailed(f"The events of job {self._job_id} broke off again and again: {piece.reason}.")
        yield Pause(backoff_s(self._failures))
        self._failures += 1
