"""One process of the pool, seen by its owner: started, asked, killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.documents import frames
from engine.documents.errors import BY_CODE, ConversionFailed, ConverterDied, TimedOut, TooLarge
from engine.errors import EngineError, LoadFailed, LoadReason

_END_S = 2.0


@dataclass(frozen=True, slots=True)
class Order:
    """What every process of a pool is to be: `converter` is `module:class`, made with `settings`.

    `memory` bounds its private bytes, 0 does not.
    """

    name: str
    converter: str
    settings: Mapping[str, Any]
    memory: int = 0
    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


class Process:
    """A process that converts. `start` returns at once; `ready` waits until it can be asked. Never from two threads."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self.resident = 0
        ours, theirs = socket.socketpair()
        life, self._life = os.pipe()
        count = str(order.threads)
        environment = {
            **os.environ,
            # As many threads as it is given, and none of them spins while it waits.
            **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), count),
            "GOMP_SPINCOUNT": "0",
            "KMP_BLOCKTIME": "0",
            **order.environment,
        }
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "engine.documents.child", str(theirs.fileno()), str(life)],
                pass_fds=(theirs.fileno(), life),
                env=environment,
                stdin=subprocess.DEVNULL,
                # What libraries print may quote a document.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except BaseException:
            ours.close()
            os.close(self._life)
            raise
        finally:
            theirs.close()
            os.close(life)
        self._line = ours
        self._ready = False
        self._killed = self._closed = False

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs still."""
        return not self._killed and self._process.poll() is None

    def ready(self, limit_s: float) -> None:
        """Wait until its converter is loaded. Raises LoadFailed; then the process is gone."""
        if self._ready:
            return
        order = self._order
        until = time.monotonic() + limit_s
        first = {
            "name": order.name,
            "converter": order.converter,
            "settings": dict(order.settings),
            "memory": order.memory,
        }
        try:
            frames.send(self._line, first, until)
            said = frames.receive(self._line, until)
        except TimeoutError:
            self.kill()
            raise LoadFailed(
                f"{order.name} was not loaded in {limit_s:.0f} s; see what its process waits for.", LoadReason.TIMEOUT
            ) from None
        except OSError:
            said = None
        if said is None:
            how = self._ended()
            raise LoadFailed(f"{order.name} could not be loaded: its process {how}.", LoadReason.UNKNOWN)
        if "failed" in said:
            self.kill()
            raise LoadFailed(said["failed"], LoadReason(said["reason"]))
        self.resident = said["resident"]
        self._ready = True

    def ask(self, request: Mapping[str, Any], until: float) -> dict[str, Any] | EngineError:
        """The data of a document, or why there is none. If it is not there by `until`, or died, the process is gone."""
        try:
            frames.send(self._line, dict(request), until)
            reply = frames.receive(self._line, until)
        except TimeoutError:
            self.kill()
            return TimedOut()
        except frames.FrameTooLong:
            self.kill()
            return TooLarge("The document or its result is larger than can be kept; choose fewer pages.")
        except OSError:
            reply = None
        if reply is None:
            return ConverterDied(f"The process that read the document {self._ended()}; send the file in another form.")
        self.resident = reply["resident"]
        if "data" in reply:
            data: dict[str, Any] = reply["data"]
            return data
        return BY_CODE.get(reply["code"], ConversionFailed)(reply["message"])

    def kill(self) -> None:
        """End it at once, whatever it does. May be called from any thread, and again."""
        # Some time passes until the kernel has ended it.
        self._killed = True
        with contextlib.suppress(OSError):
            self._process.kill()
        with contextlib.suppress(OSError):
            # Whoever waits for its answer is woken.
            self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it, wait until it is gone, and give back what it held of this process."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._line.close()
        os.close(self._life)

    def _ended(self) -> str:
        """How it ended, in words."""
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return "stopped answering"
        if code < 0:
            name = signal.Signals(-code).name
            return (
                f"was ended by {name}, perhaps for want of memory"
                if name in ("SIGKILL", "SIGABRT")
                else f"crashed ({name})"
            )
        return f"ended by itself ({code})"
