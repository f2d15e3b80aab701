"""Processes that convert documents. Each document has one to itself, and one that never ends takes its with it.

A process that hangs, dies or has grown fat is replaced; the next one loads while others go on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from typing import Any

from engine.documents.errors import ConverterDied
from engine.documents.process import Order, Process
from engine.errors import EngineError, LoadFailed


class PoolClosed(RuntimeError):
    """The pool was interrupted or closed while a document was being read."""


class Pool:
    """So many processes to one order. Thread-safe. A process whose memory is over `fat` bytes after a document goes."""

    def __init__(self, order: Order, *, processes: int, load_s: float, fat: int = 0) -> None:
        self._order = order
        self._load_s = load_s
        self._fat = fat
        self._lock = threading.Lock()
        self._closed = False
        self._idle: queue.LifoQueue[Process] = queue.LifoQueue()
        self._all: set[Process] = set()
        self._count = processes

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that there are."""
        with self._lock:
            return sorted(process.pid for process in self._all)

    @property
    def resident(self) -> int:
        """Bytes that the processes had in memory when they last answered."""
        with self._lock:
            return sum(process.resident for process in self._all)

    def start(self) -> None:
        """Start the processes and wait until all are ready. Raises LoadFailed; then none is left."""
        try:
            processes = [self._begin() for _ in range(self._count)]
            for process in processes:
                process.ready(self._load_s)
                self._idle.put(process)
        except BaseException:
            self.close()
            raise

    def convert(
        self, request: Mapping[str, Any], seconds: float, until: float | None = None
    ) -> dict[str, Any] | EngineError:
        """The data of a document, or why there is none, after `seconds` at most and not after `until` (monotonic).

        The seconds count from when a process is free for it and ready. Raises PoolClosed.
        """
        process = self._idle.get()
        try:
            if not process.alive:
                process = self._replace(process)
            process.ready(self._load_s)
            end = time.monotonic() + seconds
            end = end if until is None else min(end, until)
            found = process.ask({**request, "soft_s": max(0.1, 0.9 * (end - time.monotonic()))}, end)
            if isinstance(found, ConverterDied) and self._closed:
                raise PoolClosed
            if not process.alive or (self._fat and process.resident > self._fat):
                process = self._replace(process)
        except LoadFailed as error:
            if self._closed:
                raise PoolClosed from error
            return error
        finally:
            # Also one that is dead: whoever takes it next replaces it.
            self._idle.put(process)
        return found

    def close(self) -> None:
        """End all processes, also those at work. Whoever waits for a document hears PoolClosed."""
        with self._lock:
            self._closed = True
            ending, self._all = self._all, set()
        for process in ending:
            process.kill()
        for process in ending:
            process.close()

    def _begin(self) -> Process:
        with self._lock:
            if self._closed:
                raise PoolClosed
            process = Process(self._order)
            self._all.add(process)
        return process

    def _replace(self, old: Process) -> Process:
        with self._lock:
            self._all.discard(old)
        old.close()
        return self._begin()
