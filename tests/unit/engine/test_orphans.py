from __future__ import annotations

import subprocess
import sys

import psutil

from engine.orphans import Guard

_KILLED = """
import os, signal, subprocess, sys
from engine.orphans import Guard
child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
Guard([child.pid])
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_does_not_outlive_one_that_was_killed() -> None:
    ran = subprocess.run([sys.executable, "-c", _KILLED], stdout=subprocess.PIPE, text=True, check=False)
    assert ran.returncode < 0
    try:
        psutil.Process(int(ran.stdout)).wait(timeout=20)
    except psutil.NoSuchProcess:
        return


def test_a_guard_that_is_closed_ends_nothing() -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        guard = Guard([other.pid])
        guard.close()
        assert other.poll() is None
        other.kill()
