"""Processes of others' making that must not outlive this one, however it ends: they would keep a card's memory."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

_SCRIPT = 'read -r _; kill -9 "$@"'
"""Reads from a pipe that ends with this process."""


class Guard:
    """Ends some processes once this one is gone. `close` it after they have ended by themselves."""

    def __init__(self, pids: Sequence[int]) -> None:
        command = ["/bin/sh", "-c", _SCRIPT, "guard", *map(str, pids)]
        self._watch = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603 - numbers

    def close(self) -> None:
        """Watch no more: the numbers may soon be other processes'."""
        self._watch.kill()
        self._watch.communicate()
