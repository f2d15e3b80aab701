"""Weights in host memory and back: nothing is changed, nothing is left behind."""

from __future__ import annotations

import gc

import psutil
import pytest
import torch

from engine.hostcopy import HostCopy

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a card"))]


class Tied(torch.nn.Module):
    """Two layers of one weight, a view into another, a buffer, a plain tensor and weights of a half type."""

    shift: torch.Tensor
    part: torch.Tensor

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = torch.nn.Linear(width, width)
        self.second = torch.nn.Linear(width, width)
        self.second.weight = self.first.weight
        self.small = torch.nn.Linear(width, 3, dtype=torch.bfloat16)
        self.register_buffer("shift", torch.arange(width, dtype=torch.float32)[1:])
        self.register_buffer("part", self.first.bias.data[8:16])
        self.plain = torch.linspace(0, 1, 5)
        self.register_buffer("nothing", torch.empty(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All of it in one sum."""
        wide = self.second(self.first(x)) + self.shift.sum() + self.part.sum() + self.plain.sum()
        narrow: torch.Tensor = self.small(wide.bfloat16())
        return narrow.float()


def placed(device: str, width: int = 64) -> Tied:
    torch.manual_seed(3)
    module: Tied = Tied(width).to(device)
    # `to` parts what shares memory.
    module.part.data = module.first.bias.data[8:16]
    module.plain = module.plain.to(device)
    return module.requires_grad_(requires_grad=False)


@pytest.mark.parametrize("device", DEVICES)
def test_what_comes_back_is_equal_to_the_bit(device: str) -> None:
    module = placed(device)
    x = torch.ones(2, 64, device=device)
    before = module(x)
    copy = HostCopy(module, device)
    copy.restore()
    assert torch.equal(module(x), before)
    assert all(tensor.device.type == device for tensor in (*module.parameters(), *module.buffers(), module.plain))


@pytest.mark.parametrize("device", DEVICES)
def test_what_shares_memory_goes_on_sharing_it(device: str) -> None:
    module = placed(device)
    copy = HostCopy(module, device)
    parked = module.part.untyped_storage().data_ptr() == module.first.bias.untyped_storage().data_ptr()
    copy.restore()
    module.first.bias[8] = 17.0
    assert parked
    assert module.second.weight is module.first.weight
    assert module.part[0] == 17.0


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_is_left_on_the_device(device: str) -> None:
    module = placed(device)
    tensors = [*module.parameters(), *module.buffers(), module.plain]
    storages = [tensor.untyped_storage()._weak_ref() for tensor in tensors if tensor.nbytes]
    places = {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.untyped_storage().nbytes()}
    copy = HostCopy(module, device)
    gc.collect()
    assert places.isdisjoint(tensor.untyped_storage().data_ptr() for tensor in tensors)
    assert all(torch.UntypedStorage._expired(storage) for storage in storages)
    assert {tensor.device.type for tensor in tensors if tensor.nbytes} == {"cpu"}
    assert len({t.untyped_storage().data_ptr() for t in tensors if t.nbytes}) == 1
    assert copy.bytes >= sum({t.data_ptr(): t.nbytes for t in module.parameters()}.values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a card")
def test_a_card_is_empty_while_its_model_is_parked() -> None:
    before = torch.cuda.memory_allocated()
    module = placed("cuda", 1024)
    copy = HostCopy(module, "cuda")
    assert torch.cuda.memory_allocated() == before
    assert module.first.weight.is_pinned()
    copy.restore()
    assert torch.cuda.memory_allocated() > before


def test_weights_that_find_no_room_stay_parked_and_can_return_later(monkeypatch: pytest.MonkeyPatch) -> None:
    module = placed("cpu")
    before = module(torch.ones(1, 64))
    copy = HostCopy(module, "cpu")
    empty = torch.empty
    calls = iter(range(100))

    def full(*args: object, **kwargs: object) -> torch.Tensor:
        if next(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return empty(*args, **kwargs)  # type: ignore[call-overload, no-any-return]

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", full)
        with pytest.raises(torch.OutOfMemoryError):
            copy.restore()
    assert torch.equal(module(torch.ones(1, 64)), before)
    copy.restore()
    assert torch.equal(module(torch.ones(1, 64)), before)


def test_twenty_cycles_leave_the_resident_set_flat() -> None:
    module = placed("cpu", 1024)
    process = psutil.Process()
    after = []
    for _ in range(20):
        HostCopy(module, "cpu").restore()
        after.append(process.memory_info().rss)
    assert max(after[5:]) - after[4] < 16 * 2**20


def test_a_dropped_copy_takes_nothing() -> None:
    copy = HostCopy(placed("cpu"), "cpu")
    copy.drop()
    assert copy.bytes == 0
