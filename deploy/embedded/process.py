"""One real process of the stack: started, watched by its pid, stopped in bounded time, never left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deploy.embedded import family
from deploy.embedded.accounts import Account
from deploy.embedded.errors import NotReadyError

_LAUNCH = Path(__file__).with_name("launch.py")
_PROBE_STEP_S = 0.02
_TAIL_BYTES = 4096
_LAST_LINES = 8
_LOG_BYTES = 32 * 2**20
"""A log longer than this is put aside at the next start; the one before it goes."""


@dataclass(frozen=True)
class Command:
    """How one process is started and stopped."""

    name: str
    argv: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    cwd: Path | None = None
    stdin: bytes = field(default=b"", repr=False)
    stop_signal: signal.Signals = signal.SIGTERM
    orphan_signal: signal.Signals = signal.SIGKILL
    """Sent by the kernel when the process that started this one dies, so that nothing is left over."""
    stop_timeout_s: float = 10.0
    pass_fds: tuple[int, ...] = ()
    account: Account | None = None
    """Whom to run as; None keeps the user."""


class Process:
    """A running command. Start it from a thread that lives as long as it: the kernel ties it to that thread's life."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self._popen: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._asked = 0.0
        self._log_began = 0

    @property
    def pid(self) -> int:
        """The pid of the process last started; 0 before the first start."""
        return self._popen.pid if self._popen else 0

    @property
    def alive(self) -> bool:
        """Whether it runs now."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit status once it has ended, negative for a signal."""
        return self._popen.poll() if self._popen else None

    def fileno(self) -> int:
        """A descriptor that becomes readable when the process ends, for `select`."""
        return self._pidfd

    def start(self) -> None:
        """Start it in a session of its own, so that a Ctrl-C reaches only the supervisor."""
        if self.alive:
            return
        self._close()
        command = self.command
        account = command.account
        command.log.parent.mkdir(parents=True, exist_ok=True)
        if command.log.exists() and command.log.stat().st_size > _LOG_BYTES:
            command.log.replace(command.log.with_suffix(".log.1"))
        words = (os.getpid(), int(command.orphan_signal), *(account.words if account else (-1, -1, -1)))
        launch = (sys.executable, "-I", "-S", str(_LAUNCH), *map(str, words))
        with command.log.open("ab") as log:
            self._log_began = log.tell()
            self._popen = subprocess.Popen(  # noqa: S603 - our own programs, no shell
                (*launch, *command.argv),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(command.env),
                cwd=command.cwd,
                start_new_session=True,
                pass_fds=command.pass_fds,
            )
        assert self._popen.stdin is not None  # noqa: S101 - asked for above
        with contextlib.suppress(BrokenPipeError), self._popen.stdin as pipe:
            pipe.write(command.stdin)
        if hasattr(os, "pidfd_open"):
            self._pidfd = os.pidfd_open(self._popen.pid)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until it ends; False when the time is over first."""
        if self._popen is None or self._popen.poll() is not None:
            return True
        if self._pidfd >= 0:
            select.select([self._pidfd], [], [], timeout_s)
            return self._popen.poll() is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout_s)
        return self._popen.poll() is not None

    def await_ready(self, probe: Callable[[], bool], timeout_s: float) -> None:
        """Block until the probe says yes; notices an end of the process at once. Raises NotReadyError with its log."""
        end = time.monotonic() + timeout_s
        while not probe():
            if self.wait(_PROBE_STEP_S):
                raise NotReadyError(f"{self.command.name} ended with status {self.returncode}:\n{self.log_tail()}")
            if time.monotonic() > end:
                raise NotReadyError(f"{self.command.name} was not ready within {timeout_s:g} s:\n{self.log_tail()}")

    def await_alive(self) -> None:
        """Return at once where it runs. Raises NotReadyError with its log where it has ended."""
        self.await_ready(lambda: self.alive, 0.0)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process itself, if it still runs."""
        if self._popen is not None and self._popen.poll() is None:
            self._popen.send_signal(number)

    def ask(self) -> None:
        """Ask it to end, without waiting; its time starts to run."""
        self._asked = time.monotonic()
        self.send(self.command.stop_signal)

    def finish(self) -> bool:
        """Wait for the end that was asked for, and kill what is left. False when it had to be killed."""
        clean = self.wait(max(0.0, self._asked + self.command.stop_timeout_s - time.monotonic()))
        self.kill()
        return clean

    def stop(self) -> bool:
        """Ask it to end and wait; kill it when it takes longer than it may. False when it had to be killed."""
        self.ask()
        return self.finish()

    def kill(self) -> None:
        """Kill the process and whatever it started, as the end of the machine would."""
        if self._popen is None:
            return
        below = family.descendants(self._popen.pid) if self.alive else []
        self.send(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        family.end_all(below)
        self._close()

    def log_tail(self, limit: int = _TAIL_BYTES) -> str:
        """The end of what it has logged since it was last started."""
        if not self.command.log.exists():
            return ""
        with self.command.log.open("rb") as log:
            log.seek(max(self._log_began, log.seek(0, os.SEEK_END) - limit))
            return log.read().decode(errors="replace")

    def last_lines(self, count: int = _LAST_LINES) -> str:
        """The last lines of that, indented; with a line break before them, or empty without any."""
        lines = [line for line in self.log_tail().splitlines() if line.strip()]
        return "".join(f"\n  {line}" for line in lines[-count:])

    def _close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
