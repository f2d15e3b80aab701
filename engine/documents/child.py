"""A process of the pool: loads a converter once, then answers one document after the other until its owner is gone.

`python -m engine.documents.child LINE LIFE`: a socket for frames, and a pipe whose other end the owner holds.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from engine.documents import frames
from engine.documents.errors import ConversionFailed, TooLarge
from engine.errors import EngineError, LoadFailed
from engine.failures import load_failure, out_of_memory

_NICE = 5
"""So much this process stands back for those that answer callers at once."""


class Converts(Protocol):
    """What a converter does: data of a document, or an EngineError that is raised."""

    def convert(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The data of the document in `request`."""


def die_with_owner(life: int) -> None:
    """Have the kernel end this process when nobody holds the pipe's other end any more, whatever it computes.

    Nothing is ever written into the pipe. SIGIO, which its end gives, kills whoever does not handle it. (A signal for
    the death of the parent would come with the end of the thread that started this process.)
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)


def bound_memory(most: int) -> None:
    """Take no more private memory than `most` bytes, 0 for any; leave no core behind."""
    if most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def resident() -> int:
    """Bytes of this process in memory; 0 where nobody tells."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - read once for every document
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def main() -> None:
    """Serve."""
    line, life = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    die_with_owner(life)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    order = frames.receive(line)
    if order is None:
        return
    bound_memory(order["memory"])
    os.nice(_NICE)
    converter = _load(line, order)
    if converter is None:
        return
    frames.send(line, {"ready": True, "resident": resident()})
    while (request := frames.receive(line)) is not None:
        _answer(line, converter, request)


def _load(line: socket.socket, order: Mapping[str, Any]) -> Converts | None:
    module, _, name = order["converter"].partition(":")
    try:
        converter: Converts = getattr(import_module(module), name)(order["settings"])
    except Exception as error:  # noqa: BLE001 - told to the owner, who raises it
        failure = load_failure(order["name"], error)
        reason = failure.reason.value if isinstance(failure, LoadFailed) else "unknown"
        frames.send(line, {"failed": failure.message, "reason": reason})
        return None
    return converter


def _answer(line: socket.socket, converter: Converts, request: Mapping[str, Any]) -> None:
    reply = _reply(converter, request)
    reply["resident"] = resident()
    try:
        frames.send(line, reply)
    except (frames.FrameTooLong, MemoryError):
        error = TooLarge("The result is larger than can be kept; choose fewer pages.")
        frames.send(line, {"code": error.code, "message": error.message, "resident": resident()})


def _reply(converter: Converts, request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"data": converter.convert(request)}
    except EngineError as error:
        found = error
    except RecursionError:
        found = TooLarge("The document is nested too deep; send a flatter one.")
    except Exception as error:  # noqa: BLE001 - a library may raise anything; the next document goes on
        if out_of_memory(error):
            found = TooLarge("Reading the document takes more memory than it may; send fewer pages or a smaller file.")
        else:
            # The error's own words may quote the document.
            found = ConversionFailed(f"The converter met {type(error).__name__}; send the document in another form.")
    return {"code": found.code, "message": found.message}


if __name__ == "__main__":
    main()
