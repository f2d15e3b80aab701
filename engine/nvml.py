"""What NVIDIA's driver says of its cards, by NVML: without torch, without a CUDA context, and after one was lost.

Nothing here raises for a machine without the driver or the `nvidia-ml-py` package: there are no cards then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.memory import Use


@dataclass(frozen=True, slots=True)
class Card:
    """A card, or a part of one (MIG), with its bytes now."""

    uuid: str
    name: str
    total: int
    free: int


class Driver:
    """NVML, through a module with pynvml's functions. Every answer is empty rather than an error."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def cards(self) -> tuple[Card, ...]:
        """Every card of the machine, and in place of a card in MIG mode its parts."""
        found: list[Card] = []
        with self._careful():
            for index in range(self._library.nvmlDeviceGetCount()):
                with self._careful():
                    handle = self._library.nvmlDeviceGetHandleByIndex(index)
                    found += [self._card(part) for part in self._parts(handle) or [handle]]
        return tuple(found)

    def card(self, uuid: str) -> Card | None:
        """The card of a UUID, with or without its `GPU-` or `MIG-`; None if the driver does not know it."""
        for handle in self._handles(uuid):
            with self._careful():
                return self._card(handle)
        return None

    def users(self, uuid: str) -> tuple[Use, ...]:
        """The processes that compute on a card, by what they take; the driver's pids are those of the host."""
        for handle in self._handles(uuid):
            with self._careful():
                running = self._library.nvmlDeviceGetComputeRunningProcesses(handle)
                # The driver does not tell a process's bytes everywhere (WDDM, some containers).
                uses = [Use(int(one.pid), int(one.usedGpuMemory or 0)) for one in running]
                return tuple(sorted(uses, key=lambda use: -use.bytes))
        return ()

    def _handles(self, uuid: str) -> Iterator[Any]:
        bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
        for prefix in ("GPU-", "MIG-"):
            with self._careful():
                handle = self._library.nvmlDeviceGetHandleByUUID(prefix + bare)
                yield handle

    def _parts(self, handle: Any) -> list[Any]:
        """Handles of a card's MIG parts; none if it is whole."""
        parts: list[Any] = []
        with self._careful():
            for index in range(self._library.nvmlDeviceGetMaxMigDeviceCount(handle)):
                with self._careful():
                    parts.append(self._library.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        return parts

    def _card(self, handle: Any) -> Card:
        memory = self._library.nvmlDeviceGetMemoryInfo(handle)
        return Card(
            uuid=_text(self._library.nvmlDeviceGetUUID(handle)),
            name=_text(self._library.nvmlDeviceGetName(handle)),
            total=int(memory.total),
            free=int(memory.free),
        )

    def _careful(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.suppress(self._library.NVMLError)


@cache
def driver() -> Driver | None:
    """The machine's driver; None where there is none, or not the package to ask it with. Found once."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return Driver(pynvml)


def _text(value: str | bytes) -> str:
    # Old versions of the library answer in bytes.
    return value.decode(errors="replace") if isinstance(value, bytes) else value
