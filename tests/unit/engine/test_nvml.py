"""NVML's answers, through a library that answers as pynvml does."""
# ruff: noqa: N802 - the library's names

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from engine.memory import Use
from engine.nvml import Card, Driver


class NoAnswer(Exception):
    """As pynvml raises."""


class Library:
    """Two cards, of which the second is split into one MIG part."""

    NVMLError = NoAnswer
    names: ClassVar = {"GPU-1": "NVIDIA H200", "GPU-2": "NVIDIA A100", "MIG-3": "NVIDIA A100 MIG 1g.5gb"}

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return ("GPU-1", "GPU-2")[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self.names:
            raise NoAnswer
        return uuid

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 2 if handle == "GPU-2" else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:
        if index:
            raise NoAnswer
        return "MIG-3"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(total=100, free=60)

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetName(self, handle: str) -> bytes:
        return self.names[handle].encode()

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        told = [(5, None), (7, 30)]
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in told]


class Broken(Library):
    """A driver that has lost its cards."""

    def nvmlDeviceGetCount(self) -> int:
        raise NoAnswer

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        raise NoAnswer

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        raise NoAnswer


def test_cards_are_listed_and_a_split_one_by_its_parts() -> None:
    assert Driver(Library()).cards() == (
        Card("GPU-1", "NVIDIA H200", 100, 60),
        Card("MIG-3", "NVIDIA A100 MIG 1g.5gb", 100, 60),
    )


@pytest.mark.parametrize("uuid", ["1", "GPU-1"])
def test_a_card_is_found_by_its_uuid_as_torch_or_the_driver_writes_it(uuid: str) -> None:
    card = Driver(Library()).card(uuid)
    assert card is not None
    assert card.uuid == "GPU-1"


def test_a_part_of_a_card_is_found_by_its_uuid_alone() -> None:
    card = Driver(Library()).card("3")
    assert card is not None
    assert card.name == "NVIDIA A100 MIG 1g.5gb"


def test_who_computes_on_a_card_is_told_the_largest_first() -> None:
    assert Driver(Library()).users("GPU-1") == (Use(7, 30), Use(5, 0))


def test_a_driver_that_does_not_answer_has_no_cards_and_raises_nothing() -> None:
    broken = Driver(Broken())
    assert broken.cards() == ()
    assert broken.card("GPU-1") is None
    assert broken.users("GPU-1") == ()
    assert Driver(Library()).card("GPU-9") is None
