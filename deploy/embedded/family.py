"""Other processes, told apart by pid and start time, so that a reused number is never taken for one of ours."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path

_POLL_S = 0.05


def started_at(pid: int) -> str:
    """A mark of the process that has this pid now, empty when none has (or the system does not tell)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]


def descendants(pid: int) -> list[int]:
    """All processes below one, nearest first; none where the system does not tell."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop(0))
        found += children
        waiting += children
    return found


def gone(pid: int, timeout_s: float) -> bool:
    """Block until a process that need not be our child ends; False when the time is over first."""
    end = time.monotonic() + timeout_s
    if hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([descriptor], [], [], timeout_s)[0])
        finally:
            os.close(descriptor)
    while _exists(pid):
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_S)
    return True


def end_all(pids: Iterable[int], timeout_s: float = 5.0) -> None:
    """Kill processes and wait until they are gone."""
    victims = list(pids)
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in victims:
        gone(pid, timeout_s)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(word) for word in (task / "children").read_text().split()]
    return found


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
