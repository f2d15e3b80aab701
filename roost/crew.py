"""Threads that each carry out one call at a time, for the driver that does not await."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Crew(Generic[T]):
    """Starts a thread when there is more to do than there are threads, up to `size`.

    Left early, it forgets what has not begun, and nobody waits for what has: its threads end with their calls, and
    keep no process from ending.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._threads = 0
        self._running = 0
        self._left = False
        self._todo: SimpleQueue[tuple[int, Callable[[], T]] | None] = SimpleQueue()
        self._ended: SimpleQueue[tuple[int, T | None, BaseException | None]] = SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._left = True
        for _ in range(self._threads):
            self._todo.put(None)

    @property
    def running(self) -> int:
        """How many calls have been started and not been told of."""
        return self._running

    def start(self, number: int, call: Callable[[], T]) -> None:
        """Have a call carried out."""
        self._running += 1
        if self._running > self._threads and self._threads < self._size:
            self._threads += 1
            threading.Thread(target=self._work, name="roost-backfill", daemon=True).start()
        self._todo.put((number, call))

    def next(self) -> tuple[int, T]:
        """The number of a call that has ended, and what it returned; what it raised is raised here."""
        number, found, error = self._ended.get()
        self._running -= 1
        if error is not None:
            raise error
        return number, found  # type: ignore[return-value] # there is no error, so it is what the call returned

    def _work(self) -> None:
        while (todo := self._todo.get()) is not None and not self._left:
            number, call = todo
            try:
                self._ended.put((number, call(), None))
            except BaseException as error:  # noqa: BLE001 - it is raised where the caller waits
                self._ended.put((number, None, error))
