"""The child's end of the socket to its parent."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tasks.frames import Decoder, encode

log = logging.getLogger(__name__)

_READ = 1 << 18


class Line:
    """Blocking reads on one thread, whole frames written by any. A broken line reads as ended."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        self._lock = threading.Lock()

    def send(self, *parts: Any) -> None:
        """Write one frame. When the parent is gone it says so once in the log and carries on: the end is near."""
        try:
            with self._lock:
                self._socket.sendall(encode(*parts))
        except OSError as error:
            log.warning("the parent does not listen any more: %s", type(error).__name__)

    def frames(self) -> Iterator[Sequence[Any]]:
        """Frames as they come, until the parent closes."""
        decoder = Decoder()
        while True:
            try:
                data = self._socket.recv(_READ)
            except OSError:
                return
            if not data:
                return
            yield from decoder.feed(data)
