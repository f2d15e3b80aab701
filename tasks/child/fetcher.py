"""Jobs whose inputs are in the blob store: read by a few threads, beside all else, before they run.

A blob that is gone fails its job. A store that is away is asked again for a while; then the jobs go back to their
queues, where they cost no attempt and keep no place from others, and come again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from catalog.errors import RoostError
from tasks.child.inbox import Arrival, Inbox
from tasks.contents import Contents
from tasks.errors import BlobMissing, StoreUnavailable

log = logging.getLogger(__name__)

THREADS = 4
"""Blobs read at once."""

PATIENCE_S = 10.0
"""How long a job waits here for a store that is away."""

PAUSE_S = 0.5


class Fetcher(Inbox):
    """Threads that read the inputs of what `put` gives them and pass on what may run."""

    def __init__(
        self,
        contents: Contents,
        *,
        admit: Callable[[Sequence[Arrival]], None],
        fail: Callable[[Arrival, RoostError], None],
        give_back: Callable[[Sequence[str]], None],
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__("fetcher")
        self._contents = contents
        self._admit = admit
        self._fail = fail
        self._give_back = give_back
        self._patience_s = patience_s
        self._more = [
            threading.Thread(target=self.run, name=f"fetcher {number}", daemon=True) for number in range(1, THREADS)
        ]

    def start(self) -> None:
        """Start the threads."""
        super().start()
        for thread in self._more:
            thread.start()

    def close(self) -> None:
        """End the threads."""
        super().close()
        with self.condition:
            self.condition.notify_all()

    def run(self) -> None:
        """Read one after the other. In each thread."""
        while True:
            with self.condition:
                self.condition.wait_for(lambda: self.waiting or self.closed)
                if self.closed:
                    return
                arrival = self.waiting.pop(0)
            try:
                self._fetch(arrival)
            except Exception:
                log.exception("the inputs of job %s could not be read; its message goes back", arrival.key)
                self._give_back([arrival.key])

    def _fetch(self, arrival: Arrival) -> None:
        job = arrival.job
        if job.inputs_blob is None:
            raise ValueError("no blob")
        until = time.monotonic() + self._patience_s
        while True:
            try:
                inputs = self._contents.get(job.inputs_blob)
            except BlobMissing as error:
                self._fail(arrival, error)
                return
            except StoreUnavailable:
                if time.monotonic() >= until or self._wait():
                    self._give_back([arrival.key])
                    return
            else:
                self._admit([replace(arrival, job=replace(job, inputs=inputs))])
                return

    def _wait(self) -> bool:
        """A pause; whether we are closed."""
        with self.condition:
            return self.condition.wait_for(lambda: self.closed, PAUSE_S)
