from __future__ import annotations

import sys

import numpy as np
import pytest

from engine.device import CpuDevice, DeviceKind, FakeDevice, choose_device, parse_budget
from engine.errors import DeviceUnavailable, InvalidBudget

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000000", 1_000_000),
        ("8GiB", 8 * GIB),
        ("8 GB", 8_000_000_000),
        ("512M", 512 * 2**20),
        ("1.5gib", 3 * GIB // 2),
        ("60%", 60 * GIB),
        ("100%", 100 * GIB),
    ],
)
def test_a_budget_is_bytes_a_size_or_a_share(text: str, expected: int) -> None:
    assert parse_budget(text, FakeDevice(100 * GIB)) == expected


@pytest.mark.parametrize("text", ["", "lots", "-1", "0", "0%", "101%", "8GiBs", "101GiB", "8 XB", "1e9"])
def test_a_budget_that_is_no_size_or_not_there_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidBudget, match="ROOST_BUDGET"):
        parse_budget(text, FakeDevice(100 * GIB))


def test_cpu_is_this_machine() -> None:
    device = choose_device("cpu")
    memory = device.probe()
    assert device.kind is DeviceKind.CPU
    assert device.cores >= 1
    assert 0 < memory.ours < memory.total
    assert 0 < memory.free <= memory.total


@pytest.mark.parametrize("setting", ["gpu", "cuda:x", "cuda:", "", "tpu:0"])
def test_a_name_that_is_no_device_is_refused_with_what_is(setting: str) -> None:
    with pytest.raises(DeviceUnavailable, match="auto, cpu, cuda or cuda:N"):
        choose_device(setting)


def test_a_card_that_is_not_there_is_refused_with_how_many_there_are() -> None:
    with pytest.raises(DeviceUnavailable, match="torch sees"):
        choose_device("cuda:99")


def test_choosing_the_cpu_does_not_import_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert choose_device("cpu").name == "cpu"


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_memory_given_back_leaves_the_resident_set() -> None:
    device = CpuDevice()
    before = device.probe().ours
    block = [np.ones(2**20, dtype=np.uint8) for _ in range(64)]
    grown = device.probe().ours
    del block
    device.clear()
    assert grown - before > 48 * 2**20
    assert device.probe().ours - before < 16 * 2**20


def test_foreign_memory_on_a_fake_device_is_not_free() -> None:
    device = FakeDevice(100)
    device.foreign = 70
    assert device.probe().free == 30


def test_auto_finds_a_device_that_is_there() -> None:
    assert choose_device("auto").probe().total > 0
