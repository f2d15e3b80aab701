"""A line of what has ended and is not written yet, with a thread that writes it, many at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.messages import Completion

MOST_JOBS = 512
MOST_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Ending:
    """A job that ended, with what the parent is told: seconds it ran."""

    key: str
    completion: Completion
    runtime_s: float


class Line:
    """Start it, `put` endings from any thread, and `close` it to write what is left and end the thread.

    `expected` is how many more are sure to come: it does not end before they have.
    """

    def __init__(self, name: str, write: Callable[[Sequence[Ending]], None]) -> None:
        self._write = write
        self._waiting: list[Ending] = []
        self._expected = 0
        self._closed = False
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, endings: Sequence[Ending], *, expected: int = 0) -> None:
        """Hand over what ended together; with it so many more are expected, or with less than 0 fewer."""
        with self._condition:
            self._waiting.extend(endings)
            self._expected += expected
            self._condition.notify()

    def close(self) -> None:
        """Have the thread end once all is written. Returns at once."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def ended(self, timeout_s: float) -> bool:
        """Whether it has ended within this time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._waiting:
                    if self._closed and not self._expected:
                        return
                    self._condition.wait()
                batch, self._waiting = cut(self._waiting)
            self._write(batch)


def cut(waiting: list[Ending]) -> tuple[list[Ending], list[Ending]]:
    """As many of the oldest as one transaction should hold, and the rest."""
    size = 0
    for count, ending in enumerate(waiting):
        size += len(ending.completion.result or b"") + len(ending.completion.submission.inputs)
        if count >= MOST_JOBS or (count and size > MOST_BYTES):
            return waiting[:count], waiting[count:]
    return waiting, []
