"""This machine as a device: its memory, cores and processor, as far as the process's container lets it use them."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path

from engine.memory import Use

_NOISE = re.compile(r"\((?:r|tm)\)|\bcpu\b|\bprocessor\b|@.*|\bwith radeon.*|\b\d+-core\b", re.IGNORECASE)


def total_bytes() -> int:
    """All memory of the machine, or what its container may use of it."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(physical, _cgroup_bytes("memory.max") or physical)


def free_bytes(total: int) -> int:
    """What can be had without swapping; `total` where the system does not tell."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    free = int(match[1]) * 1024 if match else total
    used = _cgroup_bytes("memory.current")
    if used is not None and _cgroup_bytes("memory.max") is not None:
        # Pages of files are given back when memory is asked for.
        files = re.search(r"^inactive_file (\d+)", _read("/sys/fs/cgroup/memory.stat"), re.MULTILINE)
        free = min(free, max(0, total - used + (int(files[1]) if files else 0)))
    return free


def resident_bytes() -> int:
    """This process's resident set."""
    fields = _read("/proc/self/statm").split()
    if len(fields) > 1:
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    # Only the peak can be had here.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def cores() -> int:
    """How many cores this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        count = min(count, max(1, int(quota) // int(period)))
    return count


def processor() -> str:
    """The processor's name in a short form that is the same on all machines that have it: `intel-xeon-gold-6130`."""
    facts = dict(
        re.findall(r"^(model name|CPU implementer|CPU part)\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    )
    if "CPU part" in facts:
        return slug(f"arm {facts.get('CPU implementer', '')} {facts['CPU part']}")
    return slug(_NOISE.sub(" ", facts.get("model name", ""))) or slug(platform.machine()) or "unknown"


def slug(text: str) -> str:
    """Lower-case letters and digits with single dashes between, at most 60 characters."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:60]


def identity() -> str:
    """A name for the memory that this process and others share: the machine's, or that of its container.

    Containers with a limit of their own have memory of their own, even where they share a folder.
    """
    if _cgroup_bytes("memory.max") is None:
        return "cpu"
    try:
        return f"cpu-{Path('/proc/self/ns/cgroup').stat().st_ino}"
    except OSError:
        return "cpu"


def users(most: int = 5) -> tuple[Use, ...]:
    """The processes that take most memory, this one left out; those of other containers are not seen."""
    page = os.sysconf("SC_PAGE_SIZE")
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _read(f"{folder}/statm").split()
        if len(fields) > 1 and folder.name != str(os.getpid()):
            found.append(Use(int(folder.name), int(fields[1]) * page))
    return tuple(sorted(found, key=lambda use: -use.bytes)[:most])


def _cgroup_bytes(name: str) -> int | None:
    """A number of the container's memory group, None where it sets no limit."""
    text = _read(f"/sys/fs/cgroup/{name}").strip()
    return int(text) if text.isdigit() else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
