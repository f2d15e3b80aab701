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
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from engine import machine, nvml
from engine.errors import DeviceUnavailable
from engine.memory import Memory, Use

_ACCELERATOR_SIGNS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


class DeviceKind(StrEnum):
    """The kinds of device. `fake` has memory only by declaration: for tests and simulations."""

    CPU = "cpu"
    CUDA = "cuda"
    FAKE = "fake"


class Device(ABC):
    """One device. `name` is what an adapter gets; `cores` is how many threads can compute on it at once."""

    kind: ClassVar[DeviceKind]

    def __init__(self, name: str, total: int, cores: int = 1) -> None:
        self.name = name
        self.total = total
        self.cores = cores

    @property
    def hardware(self) -> str:
        """What the device is, as costs are kept by: alike devices of all machines share theirs. Begins with its kind.

        `cpu:intel-xeon-gold-6130:16`, with the cores that may be used; `cuda:nvidia-h200`, with its part if it is one.
        """
        return self.kind.value

    @property
    def identity(self) -> str:
        """Which device it is, the same for all processes of the machine whatever they call it."""
        return self.name

    def __str__(self) -> str:
        return f"{self.name} ({self.total / 2**30:.1f} GiB, {self.cores} lanes)"

    @abstractmethod
    def probe(self) -> Memory:
        """What the device says about its memory now."""

    def users(self) -> tuple[Use, ...]:
        """The processes that take most of it, for messages; empty where nobody can tell. Takes milliseconds."""
        return ()

    def clear(self, *, thorough: bool = False) -> None:
        """Give back to the device what this process has freed and still keeps.

        `thorough` also looks for garbage among all that the process has. That holds up every thread, for a fifth of a
        second once torch is imported, and is worth it only where memory is short or has not come back.
        """
        gc.collect(2 if thorough else 1)


class CpuDevice(Device):
    """This machine's memory and cores, as far as the process's container lets it use them."""

    kind = DeviceKind.CPU

    def __init__(self) -> None:
        super().__init__("cpu", machine.total_bytes(), machine.cores())
        self._hardware = f"cpu:{machine.processor()}:{self.cores}"
        self._identity = machine.identity()
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    @property
    def hardware(self) -> str:
        """The processor and how many of its cores may be used."""
        return self._hardware

    @property
    def identity(self) -> str:
        """The machine, or the container whose memory it is."""
        return self._identity

    def probe(self) -> Memory:
        """Available memory of the machine or its container, and this process's resident set."""
        return Memory(self.total, machine.free_bytes(self.total), machine.resident_bytes())

    def users(self) -> tuple[Use, ...]:
        """The largest processes that can be seen from here."""
        return machine.users()

    def clear(self, *, thorough: bool = False) -> None:
        """Collect cycles, then have glibc return its free pages; without this the resident set never shrinks."""
        super().clear(thorough=thorough)
        if self._trim is not None:
            self._trim(0)


class CudaDevice(Device):
    """One CUDA card, or a MIG part of one, as torch sees it. Raises DeviceUnavailable if the driver refuses it."""

    kind = DeviceKind.CUDA

    def __init__(self, index: int) -> None:
        import torch

        self.index = index
        try:
            facts = torch.cuda.get_device_properties(index)
            super().__init__(f"cuda:{index}", int(torch.cuda.mem_get_info(index)[1]))
        # torch raises whatever the driver makes of it: RuntimeError, AcceleratorError, AssertionError.
        except Exception as error:
            raise DeviceUnavailable(
                f"ROOST_DEVICE=cuda:{index} does not work: {type(error).__name__}: {str(error).splitlines()[0][:200]}. "
                "See what nvidia-smi says of it, or use cpu."
            ) from error
        self._hardware = f"cuda:{machine.slug(facts.name)}"
        self._uuid = _visible_part(index) or str(facts.uuid)

    @property
    def hardware(self) -> str:
        """The card's name; torch names a MIG part by its profile too."""
        return self._hardware

    @property
    def identity(self) -> str:
        """The UUID of the card or of its part, since CUDA_VISIBLE_DEVICES gives it another number in each process."""
        return self._uuid

    def probe(self) -> Memory:
        """The driver's free bytes, so that other processes' memory is seen, with what torch keeps here unused."""
        import torch

        allocated = torch.cuda.memory_allocated(self.index)
        unused = torch.cuda.memory_reserved(self.index) - allocated
        try:
            free, total = torch.cuda.mem_get_info(self.index)
        except RuntimeError:
            # After a sticky error CUDA answers nothing any more; the driver still does.
            found = nvml.driver()
            card = found.card(self._uuid) if found else None
            if card is None:
                raise
            free, total = card.free, card.total
        return Memory(int(total), int(free + unused), int(allocated))

    def users(self) -> tuple[Use, ...]:
        """The processes that compute on the card, by the driver's word."""
        found = nvml.driver()
        return found.users(self._uuid) if found else ()

    def clear(self, *, thorough: bool = False) -> None:
        """Collect cycles, then have torch's caching allocators return their free blocks."""
        import torch

        super().clear(thorough=thorough)
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

    def clear(self, *, thorough: bool = False) -> None:
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


def _visible_part(index: int) -> str:
    """The MIG part that this process was given, by UUID; empty for a whole card.

    CUDA may tell of a part the UUID of its card, and then parts that have nothing in common would share an account.
    """
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    word = given[index].strip() if index < len(given) else ""
    return word if word.startswith("MIG-") else ""


def _accelerator_signs() -> bool:
    return sys.platform == "win32" or any(Path(sign).exists() for sign in _ACCELERATOR_SIGNS)


def _cuda_count() -> int:
    try:
        import torch
    except ImportError:
        return 0
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
