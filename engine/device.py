"""The device that models run on: what it is, how much memory it has, and giving freed memory back to it.

torch is imported only when a CUDA device is asked for or may be there: importing it takes seconds.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from engine.errors import DeviceUnavailable, InvalidBudget

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{tail}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for tail, base in (("b", 1000), ("", 1024), ("ib", 1024))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b?|%)", re.IGNORECASE)
_ACCELERATOR_SIGNS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


class DeviceKind(StrEnum):
    """The kinds of device. `fake` has memory only by declaration: for tests and simulations."""

    CPU = "cpu"
    CUDA = "cuda"
    FAKE = "fake"


@dataclass(frozen=True, slots=True)
class Memory:
    """A device's bytes at one moment: all, free for anybody, and held by this process."""

    total: int
    free: int
    ours: int


class Device(ABC):
    """One device. `name` is what an adapter gets; `cores` is how many threads can compute on it at once."""

    kind: ClassVar[DeviceKind]

    def __init__(self, name: str, total: int, cores: int = 1) -> None:
        self.name = name
        self.total = total
        self.cores = cores

    @property
    def hardware(self) -> str:
        """What the device is, as costs are kept by: alike devices of all machines share theirs."""
        return self.kind.value

    def __str__(self) -> str:
        return f"{self.name} ({self.total / 2**30:.1f} GiB, {self.cores} lanes)"

    @abstractmethod
    def probe(self) -> Memory:
        """What the device says about its memory now."""

    def clear(self) -> None:
        """Give back to the device what this process has freed and still keeps."""
        gc.collect()


class CpuDevice(Device):
    """This machine's memory and cores, as far as the process's container lets it use them."""

    kind = DeviceKind.CPU

    def __init__(self) -> None:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        super().__init__("cpu", min(physical, _cgroup_bytes("memory.max") or physical), _cores())

    def probe(self) -> Memory:
        """Available memory of the machine or its container, and this process's resident set."""
        free = _meminfo_available() or self.total
        used = _cgroup_bytes("memory.current")
        if used is not None and _cgroup_bytes("memory.max") is not None:
            free = min(free, max(0, self.total - used))
        return Memory(self.total, free, _resident_bytes())

    def clear(self) -> None:
        """Collect cycles, then have glibc return its free pages; without this the resident set never shrinks."""
        super().clear()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


class CudaDevice(Device):
    """One CUDA card as torch sees it."""

    kind = DeviceKind.CUDA

    def __init__(self, index: int) -> None:
        import torch

        self.index = index
        super().__init__(f"cuda:{index}", int(torch.cuda.get_device_properties(index).total_memory))

    def probe(self) -> Memory:
        """The driver's free bytes, so that other processes' memory is seen, with what torch keeps here unused."""
        import torch

        free, total = torch.cuda.mem_get_info(self.index)
        allocated = torch.cuda.memory_allocated(self.index)
        unused = torch.cuda.memory_reserved(self.index) - allocated
        return Memory(int(total), int(free + unused), int(allocated))

    def clear(self) -> None:
        """Collect cycles, then have torch's caching allocator return its free blocks."""
        import torch

        super().clear()
        with torch.cuda.device(self.index):
            torch.cuda.empty_cache()


class FakeDevice(Device):
    """A device of a declared size. `foreign` stands for what other processes hold; tests change it."""

    kind = DeviceKind.FAKE

    def __init__(self, total: int = 2**40, cores: int = 1) -> None:
        super().__init__("fake", total, cores)
        self.foreign = 0

    def probe(self) -> Memory:
        """The declared total less what is foreign; models on it take memory only in the ledger."""
        return Memory(self.total, max(0, self.total - self.foreign), 0)

    def clear(self) -> None:
        """Nothing: there is no memory behind it."""


def choose_device(setting: str) -> Device:
    """The device of a setting: `auto`, `cpu`, `cuda` or `cuda:N`. Raises DeviceUnavailable with what there is.

    `auto` takes the first CUDA card if torch can use one, and the CPU otherwise.
    """
    name = setting.strip().lower()
    if name == "cpu":
        return CpuDevice()
    if name == "auto":
        return CudaDevice(0) if _accelerator_signs() and _cuda_count() > 0 else CpuDevice()
    match = re.fullmatch(r"cuda(?::(\d{1,3}))?", name)
    if match is None:
        raise DeviceUnavailable(f"ROOST_DEVICE={setting[:50]!r} is no device: use auto, cpu, cuda or cuda:N.")
    index, count = int(match[1] or 0), _cuda_count()
    if index >= count:
        there = f"torch sees {count} CUDA card(s), cuda:0 to cuda:{count - 1}" if count else "torch sees no CUDA card"
        raise DeviceUnavailable(f"ROOST_DEVICE={name} is not there: {there}. Use auto or cpu, or mend the driver.")
    return CudaDevice(index)


def parse_budget(text: str, device: Device) -> int:
    """The bytes of a budget: `8589934592`, `8GiB`, `8 GB`, `512M` (binary without the `B`), or `60%` of the device.

    Raises InvalidBudget for anything else, for nothing, and for more than the device has.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidBudget(f"ROOST_BUDGET={text[:50]!r} is no size: give bytes, 8GiB, or a share such as 60%.")
    amount, unit = float(match[1]), match[2].lower()
    budget = int(device.total * amount / 100) if unit == "%" else int(amount * _UNITS[unit])
    if not 0 < budget <= device.total:
        raise InvalidBudget(
            f"ROOST_BUDGET={text[:50]!r} is {budget} bytes, but {device.name} has {device.total}: "
            "give more than nothing and no more than that."
        )
    return budget


def _accelerator_signs() -> bool:
    return sys.platform == "win32" or any(Path(sign).exists() for sign in _ACCELERATOR_SIGNS)


def _cuda_count() -> int:
    try:
        import torch
    except ImportError:
        return 0
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def _cgroup_bytes(name: str) -> int | None:
    """A number of the container's memory group, None where it sets no limit."""
    text = _read(f"/sys/fs/cgroup/{name}").strip()
    return int(text) if text.isdigit() else None


def _meminfo_available() -> int | None:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _resident_bytes() -> int:
    fields = _read("/proc/self/statm").split()
    if len(fields) > 1:
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    # Only the peak can be had here.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""
