"""The wish of a person or of a service manager that the stack should end."""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """Catches the signals that mean "stop" while it is entered; `select` can wait for it.

    While `raising`, a signal also interrupts what runs, with KeyboardInterrupt: during the start, and during the stop
    when a second one comes. Between those it only makes `fileno` readable.
    """

    def __init__(self) -> None:
        self.raising = True
        self.received: signal.Signals | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """A descriptor that is readable once a signal has come."""
        return self._read

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.received = signal.Signals(number)
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"!")
        if self.raising:
            raise KeyboardInterrupt
