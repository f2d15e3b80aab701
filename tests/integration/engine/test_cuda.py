"""A real card: what it says of its memory, running out of it, and two processes on it. Skipped where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from catalog.options import EncodeOptions  # noqa: E402 - torch may not be there
from catalog.schema import EncodeFacts, Spec, Tasks  # noqa: E402
from catalog.terms import Lane, Verb  # noqa: E402
from engine import nvml  # noqa: E402
from engine.account import Share  # noqa: E402
from engine.adapters.base import Adapter, LoadOptions  # noqa: E402
from engine.device import CudaDevice, choose_device  # noqa: E402
from engine.errors import DeviceUnavailable, OutOfMemory  # noqa: E402
from engine.runner import run_batch  # noqa: E402
from engine.shared_account import SharedAccount  # noqa: E402
from engine.types import Batch, Entry, Footprint, Item, Outcome, Output, Work  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA card")

Join = Callable[..., Any]
MIB = 2**20


@pytest.fixture
def gpu() -> Iterator[CudaDevice]:
    device = choose_device("cuda:0")
    assert isinstance(device, CudaDevice)
    device.clear(thorough=True)
    yield device
    device.clear(thorough=True)


def test_what_is_allocated_is_ours_and_no_longer_free_and_comes_back(gpu: CudaDevice) -> None:
    before = gpu.probe()
    block = torch.empty(256 * MIB, dtype=torch.uint8, device=gpu.name)
    taken = gpu.probe()
    assert taken.ours - before.ours == 256 * MIB
    assert before.free - taken.free >= 256 * MIB
    del block
    # Even before it is given back it is free for us.
    assert gpu.probe().ours == before.ours
    assert gpu.probe().free - taken.free >= 255 * MIB
    gpu.clear()
    assert torch.cuda.memory_reserved(gpu.index) <= 32 * MIB


def test_a_card_is_told_by_its_name_and_by_the_same_identity_under_any_number(gpu: CudaDevice) -> None:
    assert gpu.hardware.startswith("cuda:")
    assert len(gpu.hardware) > len("cuda:")
    code = "from engine.device import choose_device; print(choose_device('cuda:0').identity)"
    asked = {"CUDA_VISIBLE_DEVICES": f"GPU-{gpu.identity}", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **asked}
    )
    assert told.stdout.strip() == gpu.identity


def test_the_driver_tells_the_same_of_the_card_without_torch(gpu: CudaDevice) -> None:
    driver = nvml.driver()
    if driver is None:
        pytest.skip("nvidia-ml-py is not installed")
    card = driver.card(gpu.identity)
    assert card is not None
    assert card.total == pytest.approx(gpu.total, rel=0.03)
    assert card.free == pytest.approx(gpu.probe().free, rel=0.05)
    assert card in driver.cards()
    assert gpu.users()


def test_a_card_with_a_number_too_high_is_not_there() -> None:
    with pytest.raises(DeviceUnavailable, match="torch sees"):
        choose_device("cuda:99")


class Hungry(Adapter):
    """Takes as many MiB of the card for an item as its length says, for the time of the call."""

    def footprint(self) -> Footprint:
        return Footprint(0)

    def load(self) -> None:
        return None

    def unload(self) -> None:
        return None

    def run(self, batch: Batch) -> Sequence[Outcome]:
        blocks = [torch.ones(e.item.length * MIB, dtype=torch.uint8, device=self.device) for e in batch.entries]
        return [Output({"size": int(block[-1].item()) * block.numel()}, 1, False) for block in blocks]


def batch_of(lengths: Sequence[int]) -> Batch:
    entries = []
    for index, length in enumerate(lengths):
        item = Item(index=0, payload={"text": "x"}, length=length, cost_ms=1.0)
        work = Work(
            id=str(index),
            model="hungry",
            verb=Verb.ENCODE,
            items=(item,),
            options=EncodeOptions(),
            lane=Lane.INTERACTIVE,
            priority=5,
            arrived=0.0,
        )
        entries.append(Entry(work, item))
    return Batch(id=1, model="hungry", verb=Verb.ENCODE, entries=tuple(entries))


def test_a_batch_that_the_card_cannot_hold_is_split_until_only_what_never_fits_fails(gpu: CudaDevice) -> None:
    spec = Spec(
        id="hungry", family="fake", tasks=Tasks(encode=EncodeFacts(dims=8)), parameters=0, max_length=2**30, load={}
    )
    adapter = Hungry(spec, LoadOptions(), None, gpu.name)
    free = gpu.probe().free // MIB
    third, giant = free * 3 // 10, free * 3 // 2
    came = run_batch(
        adapter,
        batch_of([third, third, giant, third, third]),
        clear=partial(gpu.clear, thorough=True),
        relieve=lambda: False,
    )
    assert [isinstance(outcome, Output) for outcome in came.outcomes] == [True, True, False, True, True]
    assert isinstance(came.outcomes[2], OutOfMemory)
    assert not came.clean
    gpu.clear(thorough=True)
    assert gpu.probe().free // MIB >= free - 64


def test_two_processes_on_one_card_never_hold_more_than_it_has(gpu: CudaDevice, join: Join, folder: Path) -> None:
    account = SharedAccount(gpu, folder)
    other = join(0, "cuda:0")
    share = gpu.total * 6 // 10
    assert account.hold(Share(share))
    assert not other.hold(share)
    account.close()
    assert other.hold(share)
    third = join(0, "cuda:0")
    assert not third.hold(share)
    other.kill()
    assert third.hold(share)


def test_a_foreign_process_that_takes_the_card_leaves_less_to_hold(
    gpu: CudaDevice, join: Join, kill_later: Callable[[int], None]
) -> None:
    size = gpu.probe().free * 6 // 10
    code = f"import torch, sys; x = torch.ones({size}, dtype=torch.uint8, device='cuda:0'); print('has it', flush=True)"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    foreigner = subprocess.Popen([sys.executable, "-c", f"{code}; sys.stdin.read()"], **pipes)
    kill_later(foreigner.pid)
    one = join(0, "cuda:0")
    with foreigner:
        assert foreigner.stdout is not None
        assert foreigner.stdout.readline()
        assert not one.hold(size, size)
        assert one.call("foreign")[0] >= size
        foreigner.kill()
        foreigner.wait(60)
    assert one.hold(size, size)
