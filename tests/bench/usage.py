"""What the processes of the stack spend: CPU seconds inside a window and memory, by the part each one plays."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

CLIENT = "client"
ROLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("valkey", ("valkey-server",)),
    ("postgres", ("postgres",)),
    ("child", ("tasks.child",)),
    ("flower", ("flower",)),
    ("beat", (" beat",)),
    ("feeder", ("api.feeding",)),
    ("sender", ("-Q webhooks",)),
    ("api", ("deploy.embedded.serve", "uvicorn", "api.app")),
    ("sweeper", ("jobs.sweep",)),
    ("parent", ("celery",)),
    ("by hand", ("tests.bench.handwritten",)),
    ("supervisor", ("tests.bench.served", "deploy.cli")),
)
"""Words in a command line that tell the part; the first that fits decides."""


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds by part inside a window of `seconds`, and of everything else on the machine."""

    seconds: float
    cpu: Mapping[str, float]
    elsewhere: float = 0.0

    def share(self, role: str) -> float:
        """Cores that a part kept busy on average."""
        return self.cpu.get(role, 0.0) / self.seconds if self.seconds else 0.0

    @property
    def others(self) -> float:
        """Cores that processes outside the measurement kept busy: they make every figure worse."""
        return max(0.0, self.elsewhere) / self.seconds if self.seconds else 0.0

    def per(self, count: int) -> dict[str, float]:
        """CPU microseconds by part for each of `count` jobs, dearest first."""
        if count <= 0:
            return {}
        return {role: cpu / count * 1e6 for role, cpu in sorted(self.cpu.items(), key=lambda pair: -pair[1])}


def role_of(words: Sequence[str], name: str = "") -> str:
    """The part that a command line plays; `name` (the executable's) when none of ours fits."""
    line = " ".join(words)
    for role, signs in ROLES:
        if any(sign in line for sign in signs):
            return role
    return name or "other"


class Meter:
    """Reads a process tree when a window opens and closes; the caller's own process counts as the client."""

    def __init__(self, *roots: int) -> None:
        self._roots = roots
        self._before: dict[int, tuple[str, float]] = {}
        self._began = 0.0
        self._busy = 0.0
        self.spent = Spent(0.0, {})

    def opened(self) -> None:
        """Note the counters."""
        self._before = self._read()
        self._busy = _busy()
        self._began = time.perf_counter()

    def closed(self) -> None:
        """Set `spent` to what was used since the window opened. A process that ended meanwhile is not seen."""
        seconds = time.perf_counter() - self._began
        busy = _busy() - self._busy
        cpu: dict[str, float] = {}
        for pid, (role, used) in self._read().items():
            before = self._before.get(pid, (role, 0.0))[1]
            cpu[role] = cpu.get(role, 0.0) + used - before
        self.spent = Spent(seconds, {role: used for role, used in cpu.items() if used > 0}, busy - sum(cpu.values()))

    def _read(self) -> dict[int, tuple[str, float]]:
        read = {os.getpid(): (CLIENT, _cpu(psutil.Process()))}
        for process, role in members(*self._roots):
            with contextlib.suppress(psutil.Error):
                read[process.pid] = (role, _cpu(process))
        return read


def _busy() -> float:
    """CPU seconds that the machine has worked since it started, all cores together, stolen time included."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def tree(*roots: int) -> list[psutil.Process]:
    """The processes with these pids and all their descendants that live now."""
    found: dict[int, psutil.Process] = {}
    for pid in roots:
        try:
            root = psutil.Process(pid)
            for process in (root, *root.children(recursive=True)):
                found[process.pid] = process
        except psutil.NoSuchProcess:
            continue
    return list(found.values())


def members(*roots: int) -> list[tuple[psutil.Process, str]]:
    """The processes of `tree`, each with the part it plays; those that have just ended are left out."""
    found = []
    for process in tree(*roots):
        with contextlib.suppress(psutil.Error):
            found.append((process, role_of(process.cmdline(), process.name())))
    return found


def peak_mib(pid: int) -> float:
    """The most memory a process has held (VmHWM), in MiB; 0 where the system does not tell."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0.0
    for line in status.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def peaks(*roots: int) -> dict[str, float]:
    """Peak memory in MiB by part, each process of a part added. Pages that processes share count once for each."""
    sums: dict[str, float] = {}
    for process, role in members(*roots):
        sums[role] = sums.get(role, 0.0) + peak_mib(process.pid)
    return sums


def proportional_mib(*roots: int) -> float:
    """Memory of a process tree in MiB with shared pages counted once in all (PSS)."""
    held = 0.0
    for process in tree(*roots):
        try:
            held += process.memory_full_info().pss / 2**20
        except (psutil.Error, AttributeError):
            continue
    return held
