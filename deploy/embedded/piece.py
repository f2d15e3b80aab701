"""What the supervisor starts, watches and stops: a server, or any other command with a way to tell that it is ready."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from deploy.embedded.process import Command, Process


class Piece(Protocol):
    """One part of the stack."""

    @property
    def name(self) -> str:
        """Its name, unique in the stack."""

    @property
    def where(self) -> str:
        """The address it listens on, without secrets; empty if on none."""

    @property
    def process(self) -> Process:
        """Its process, from the first start on."""

    def begin(self) -> None:
        """Start it, again if it has ended, without waiting."""

    def await_ready(self, timeout_s: float) -> None:
        """Block until it does its work. Raises NotReadyError."""


class Program:
    """A piece that is one command."""

    def __init__(self, command: Command, *, where: str = "", ready: Callable[[float], bool] | None = None) -> None:
        self.name = command.name
        self.where = where
        self.process = Process(command)
        self._ready = ready
        self._began = 0.0

    def begin(self) -> None:
        """Start it, again if it has ended."""
        self._began = time.time()
        self.process.start()

    def await_ready(self, timeout_s: float) -> None:
        """Block until its probe says yes; at once for one without a probe."""
        ready = self._ready
        if ready is not None:
            self.process.await_ready(lambda: ready(self._began), timeout_s)
