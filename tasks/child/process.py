"""What makes this process a good child: it dies with its parent, and signals for the group do not touch it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ask the kernel (Linux) to kill this process when its parent ends; end now if it already has.

    Elsewhere the end of the socket does the same, only later if a forward pass holds the interpreter.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def leave_signals_to_parent() -> None:
    """Ctrl-C and a group's SIGTERM reach the parent, which then hands back, waits and stops us by a frame."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def let_idle_threads_sleep() -> None:
    """Have the threads of a computation sleep, not spin, while they wait for each other. Before torch is imported.

    They share the cores with lanes, the parent, the API and the database: where these were busy, a text took 24 to 29
    ms of CPU with two sleeping threads and 101 to 115 with two that spin. Whoever sets the variables is left alone.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
