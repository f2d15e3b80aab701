"""The parent's end of the engine child: a process and a socket, neither of which ever blocks the message loop."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from kombu.asynchronous import Hub

from tasks.frames import Decoder, encode

log = logging.getLogger(__name__)

CHILD = (sys.executable, "-P", "-m", "tasks.child")

_READ = 1 << 18
_BUFFER = 1 << 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0


class EngineLink:
    """Starts the child, starts it again when it dies, and carries frames both ways.

    `on_frame` gets each frame; `on_started` is called for each child, before anything can be heard of it; `on_lost`
    once for each that has gone, with why. All may call `send`: what is sent while there is no child is dropped, because
    the next one must be told everything anyway. `proved` says that a child has worked.
    """

    def __init__(
        self,
        command: Sequence[str],
        name: str,
        *,
        on_frame: Callable[[Sequence[Any]], None],
        on_started: Callable[[], None],
        on_lost: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = tuple(command)
        self._name = name
        self._on_frame = on_frame
        self._on_started = on_started
        self._on_lost = on_lost
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._writer: socket.socket | None = None
        self._decoder = Decoder()
        self._outbox = bytearray()
        self._hub: Hub | None = None
        self._due: float | None = None
        self._pause = _FIRST_PAUSE_S
        self._reason = ""
        self._writing = False
        self._asked = False
        self.closing = False
        self.proved = False

    @property
    def alive(self) -> bool:
        """Whether there is a child to talk to."""
        return self._socket is not None

    @property
    def pid(self) -> int:
        """The child's process id; 0 without one."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start a child. It gets its end of the socket, our environment, and a process group apart from a terminal."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        with theirs:
            words = ("--fd", str(theirs.fileno()), "--name", self._name, "--parent", str(os.getpid()))
            self._process = subprocess.Popen(  # noqa: S603 - our own program, no shell
                (*self._command, *words), stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), process_group=0
            )
        ours.setblocking(False)
        self._socket, self._writer = ours, ours.dup()
        self._decoder, self._outbox = Decoder(), bytearray()
        self._due, self._reason = None, ""
        if self._hub is not None:
            self._hub.add_reader(ours.fileno(), self._read)
        log.info("engine child %d started", self._process.pid)
        self._on_started()

    def started_well(self) -> None:
        """The child works. If it dies later, the next may start soon: long pauses are for those that cannot start."""
        self._pause = _FIRST_PAUSE_S
        self.proved = True

    def register(self, hub: Hub) -> None:
        """Read from the message loop. Again after each reset of the loop, which forgets its readers."""
        self._hub = hub
        if self._socket is not None:
            hub.add_reader(self._socket.fileno(), self._read)
            self._writing = False
            self._write()

    def unregister(self) -> None:
        """The message loop does not run for now; see `pump`."""
        if self._hub is not None:
            self._leave_loop(self._hub)
            self._hub = None

    def send(self, *parts: Any) -> None:
        """Send one frame, as far as the socket takes it now; the rest follows when it can."""
        if self._socket is None:
            return
        waiting = bool(self._outbox)
        self._outbox += encode(*parts)
        if not waiting:
            self._write()

    def pump(self, timeout_s: float) -> None:
        """Do what the message loop would do for us, for at most this long or until something came."""
        if self._socket is not None:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._outbox else 0))
            for _, events in poll.poll(timeout_s * 1000):
                if events & select.POLLOUT:
                    self._write()
                if events & ~select.POLLOUT:
                    self._read()
        elif self._due is not None:
            select.select([], [], [], min(timeout_s, max(0.0, self._due - self._clock())))
        self.tick()

    def tick(self) -> None:
        """Notice a child that ended while its own children hold its socket, and start the next when it is time."""
        if self._process is not None and self._process.poll() is not None:
            while self._socket is not None and self._read():
                pass
            if self._process is not None:
                self._gone("it ended")
        if self._due is not None and self._clock() >= self._due and not self.closing:
            self.start()

    def kill(self, reason: str) -> None:
        """End the child at once. What it has said is still heard; `on_lost` follows."""
        if self._process is not None and not self._reason:
            log.error("engine child %d is killed: %s", self._process.pid, reason)
            self._reason = reason
            self._process.kill()

    def end(self, reason: str, timeout_s: float) -> None:
        """Kill the child and hear its last words."""
        self.kill(reason)
        end = self._clock() + timeout_s
        while self._socket is not None and (left := end - self._clock()) > 0:
            self.pump(left)

    def close(self, timeout_s: float) -> None:
        """Ask the child to end, kill it if it does not, and start no other."""
        self.closing = True
        process = self._process
        if process is None:
            return
        self.send("stop")
        self._asked = True
        end = self._clock() + timeout_s
        while self._socket is not None and (left := end - self._clock()) > 0:
            self.pump(left)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, end - self._clock()))
        if process.poll() is None:
            log.warning("engine child %d is killed: it did not end in %.0f s", process.pid, timeout_s)
            process.kill()
        self._release()
        _reap(process)

    def _read(self) -> bool:
        """Hear what the child says; whether there may be more."""
        if self._socket is None:
            return False
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return False
        except OSError as error:
            self._gone(type(error).__name__)
            return False
        if not data:
            self._gone("it closed its socket")
            return False
        try:
            for frame in self._decoder.feed(data):
                self._on_frame(frame)
        except ValueError as error:
            self.kill(f"it sent what is no frame: {error}")
        return True

    def _write(self) -> None:
        if self._writer is None:
            return
        try:
            while self._outbox:
                sent = self._writer.send(bytes(self._outbox[:_BUFFER]))
                del self._outbox[:sent]
        except BlockingIOError:
            if self._hub is not None and not self._writing:
                self._writing = True
                self._hub.add_writer(self._writer.fileno(), self._write)
            return
        except OSError:
            # The reading side sees the same end and says so, after what the child still had to tell.
            self._outbox.clear()
        if self._hub is not None and self._writing:
            self._writing = False
            self._hub.remove(self._writer.fileno())

    def _gone(self, reason: str) -> None:
        process = self._process
        if process is None:
            return
        reason = self._reason or reason
        self._release()
        if self._asked:
            # It closes its socket as the last thing it does; `close` waits for the rest.
            self._process = process
            return
        process.kill()
        status = _reap(process)
        if status is not None and status < 0:
            reason = f"{reason} ({signal.Signals(-status).name})"
        if not self.closing:
            self._due = self._clock() + self._pause
            self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)
        self._on_lost(reason)

    def _release(self) -> None:
        if self._hub is not None:
            self._leave_loop(self._hub)
        for end in (self._socket, self._writer):
            if end is not None:
                end.close()
        self._process = self._socket = self._writer = None
        self._outbox = bytearray()
        self._writing = False

    def _leave_loop(self, hub: Hub) -> None:
        for end in (self._socket, self._writer):
            if end is not None:
                hub.remove(end.fileno())


def _reap(process: subprocess.Popen[bytes]) -> int | None:
    """The exit status of a killed process; None if the kernel still holds it, for a driver perhaps."""
    try:
        return process.wait(5.0)
    except subprocess.TimeoutExpired:
        log.warning("engine child %d does not die", process.pid)
        return None
