"""What the supervisor starts, watches and stops: a server, or any other command with a way to tell that it is ready."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from deploy.embedded.errors import NotReadyError
from deploy.embedded.process import Command, Process

GIVE_UP_AT = 3
_WATCHED_BYTES = 2**16


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
    """A piece that is one command.

    `fall` is what its log says each time that something below it dies and is started again: `say` is told of the first
    while we wait for it to be ready, and at GIVE_UP_AT we wait no longer.
    """

    def __init__(
        self,
        command: Command,
        *,
        where: str = "",
        ready: Callable[[float], bool] | None = None,
        fall: str = "",
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.name = command.name
        self.where = where
        self.process = Process(command)
        self._ready = ready
        self._fall = fall
        self._say = say
        self._told = False
        self._began = 0.0

    def begin(self) -> None:
        """Start it, again if it has ended."""
        self._began = time.time()
        self.process.start()

    def await_ready(self, timeout_s: float) -> None:
        """Block until its probe says yes; one without a probe has only to be alive. Raises NotReadyError."""
        ready = self._ready
        if ready is None:
            self.process.await_alive()
        else:
            self.process.await_ready(lambda: self._stands() and ready(self._began), timeout_s)

    def _stands(self) -> bool:
        falls = self.process.log_tail(_WATCHED_BYTES).count(self._fall) if self._fall else 0
        if falls >= GIVE_UP_AT:
            raise NotReadyError(f"{self.name}: {self._fall}, {falls} times:{self.process.last_lines()}")
        if falls and not self._told:
            self._told = True
            self._say(f"{self.name}: {self._fall}; it is started again:{self.process.last_lines()}")
        return True
