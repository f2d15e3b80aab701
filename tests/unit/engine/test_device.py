from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine import nvml
from engine.device import CpuDevice, DeviceKind, FakeDevice, choose_device
from engine.errors import DeviceUnavailable
from engine.memory import Memory


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


def test_the_hardware_of_a_cpu_is_its_kind_its_processor_and_its_cores() -> None:
    device = CpuDevice()
    kind, name, cores = device.hardware.split(":")
    assert (kind, cores) == ("cpu", str(device.cores))
    assert name


class Cycle:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.me = self
        self.block = np.ones(64 * 2**20, dtype=np.uint8)


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_old_garbage_is_found_by_a_thorough_clearing() -> None:
    device = CpuDevice()
    garbage = Cycle()
    # Two collections, and it counts as old.
    device.clear()
    device.clear()
    grown = device.probe().ours
    del garbage
    device.clear(thorough=True)
    assert grown - device.probe().ours > 48 * 2**20


class TorchCuda:
    """What torch says of one card, in a process in which `lost` CUDA answers nothing any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost = False
        answers = {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "get_device_properties": lambda _: SimpleNamespace(name="NVIDIA A100-SXM4 MIG 1g.5gb", uuid="abc-1"),
            "memory_allocated": lambda _: 10,
            "memory_reserved": lambda _: 25,
            "mem_get_info": self._mem_get_info,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(torch.cuda, name, answer)

    def _mem_get_info(self, _: int) -> tuple[int, int]:
        if self.lost:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return 60, 100


@pytest.fixture
def torch_cuda(monkeypatch: pytest.MonkeyPatch) -> TorchCuda:
    return TorchCuda(monkeypatch)


def test_what_torch_keeps_unused_on_a_card_is_free_for_this_process(torch_cuda: TorchCuda) -> None:
    assert choose_device("cuda").probe() == Memory(total=100, free=75, ours=10)


def test_a_card_is_known_by_its_uuid_whatever_its_number(
    torch_cuda: TorchCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert choose_device("cuda:0").identity == "abc-1"


def test_a_part_of_a_card_is_told_from_other_parts_by_its_name_and_its_uuid(
    torch_cuda: TorchCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-7,MIG-8")
    device = choose_device("cuda:0")
    assert (device.hardware, device.identity) == ("cuda:nvidia-a100-sxm4-mig-1g.5gb", "MIG-7")


def test_a_lost_card_s_memory_is_asked_of_the_driver(torch_cuda: TorchCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    device = choose_device("cuda")
    torch_cuda.lost = True
    card = nvml.Card("GPU-abc-1", "NVIDIA A100", total=101, free=40)
    monkeypatch.setattr(nvml, "driver", lambda: SimpleNamespace(card={"abc-1": card}.get))
    assert device.probe() == Memory(total=101, free=55, ours=10)
    monkeypatch.setattr(nvml, "driver", lambda: None)
    with pytest.raises(RuntimeError, match="device-side assert"):
        device.probe()


def test_a_card_that_the_driver_refuses_is_unavailable_with_its_reason(torch_cuda: TorchCuda) -> None:
    torch_cuda.lost = True
    with pytest.raises(DeviceUnavailable, match="RuntimeError: CUDA error: device-side assert"):
        choose_device("cuda")
