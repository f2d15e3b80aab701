"""Keeps the pieces alive: restarts what ends, waiting longer each time, and stops all in reverse order."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable
from typing import Protocol

from deploy.embedded.errors import EmbeddedError
from deploy.embedded.piece import Piece

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 10.0
STEADY_S = 30.0
_WITHOUT_PIDFD_S = 0.5
_TELLING_DELAY_S = FIRST_DELAY_S * 2


class Readable(Protocol):
    """Something that `select` can wait for."""

    def fileno(self) -> int:
        """Its descriptor."""


def next_delay(last_delay_s: float, ran_s: float) -> float:
    """How long to wait before a restart: doubled each time, from the start again after a steady run. Pure."""
    if last_delay_s == 0 or ran_s >= STEADY_S:
        return FIRST_DELAY_S
    return min(LONGEST_DELAY_S, last_delay_s * 2)


class Supervisor:
    """Runs in one thread: children are tied to the life of the thread that starts them."""

    def __init__(
        self,
        say: Callable[[str], None],
        changed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pieces: list[Piece] = []
        self._say = say
        self._changed = changed
        self._clock = clock
        self._began: dict[str, float] = {}
        self._delays: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def begin(self, *pieces: Piece) -> None:
        """Start pieces at the same time, and stop them later in reverse of this order."""
        for piece in pieces:
            self._began[piece.name] = self._clock()
            piece.begin()
            self.pieces.append(piece)
        self._changed()

    def watch(self, until: Readable) -> None:
        """Block, restarting what ends, until there is something to read from `until`."""
        while True:
            self._restart_due()
            watched = [piece.process for piece in self.pieces if piece.name not in self._due]
            ready, _, _ = select.select(
                [until, *(process for process in watched if process.fileno() >= 0)], [], [], self._patience()
            )
            if until in ready:
                return
            for piece in self.pieces:
                if piece.name not in self._due and not piece.process.alive:
                    self._note_fall(piece)

    def stop(self) -> list[str]:
        """Stop all: what serves first, then what it stands on. The names of the pieces that had to be killed."""
        killed: list[str] = []
        servers = [piece for piece in self.pieces if piece.name in {"valkey", "postgres"}]
        others = [piece for piece in self.pieces if piece not in servers]
        try:
            for group in (list(reversed(others)), list(reversed(servers))):
                for piece in group:
                    piece.process.ask()
                killed += [piece.name for piece in group if not piece.process.finish()]
        finally:
            # Reached early by a second Ctrl-C.
            for piece in self.pieces:
                piece.process.kill()
            self.pieces.clear()
        return killed

    def _restart_due(self) -> None:
        now = self._clock()
        for piece in self.pieces:
            if self._due.get(piece.name, float("inf")) <= now:
                del self._due[piece.name]
                self._began[piece.name] = now
                piece.process.kill()
                try:
                    piece.begin()
                except EmbeddedError as error:
                    self._say(f"{piece.name} could not start: {error}")
                self._changed()

    def _note_fall(self, piece: Piece) -> None:
        now = self._clock()
        delay = next_delay(self._delays.get(piece.name, 0.0), now - self._began[piece.name])
        self._delays[piece.name] = delay
        self._due[piece.name] = now + delay
        code = piece.process.returncode
        # A signal came from elsewhere, so the log does not tell why; and who dies again and again tells the same.
        why = piece.process.last_lines() if code is not None and code > 0 and delay <= _TELLING_DELAY_S else ""
        self._say(f"{piece.name} ended ({ending(code)}); starting it again in {delay:g} s{why}")

    def _patience(self) -> float | None:
        now = self._clock()
        waits = [max(0.0, due - now) for due in self._due.values()]
        if any(piece.process.alive and piece.process.fileno() < 0 for piece in self.pieces):
            waits.append(_WITHOUT_PIDFD_S)
        return min(waits, default=None)


def ending(returncode: int | None) -> str:
    """An exit status in words."""
    if returncode is None:
        return "still running"
    if returncode < 0:
        try:
            return signal.Signals(-returncode).name
        except ValueError:
            return f"signal {-returncode}"
    return f"status {returncode}"
