"""The books against what this machine says, with real weights."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle, islice
from typing import Any

import pytest

from catalog.loader import Catalog
from engine.device import CpuDevice
from engine.engine import EngineLimits
from engine.errors import DeviceLost, EngineError
from engine.eviction import EvictionPolicy
from engine.limits import floor_tokens
from engine.residency import Residency
from engine.snapshot import ModelState, Phase

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")

MIB = 2**20
PATIENCE_S = 120.0
MODELS = ("first", "second", "third")


class Silent:
    """Hears nothing."""

    def load_started(self, model: str) -> None: ...

    def load_ended(self, model: str) -> None: ...

    def ready(self, model: str) -> None: ...

    def left(self, model: str) -> None: ...

    def refused(self, model: str, error: EngineError) -> None: ...

    def lost(self, error: DeviceLost) -> None: ...


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    return CpuDevice()


Make = Callable[..., Residency]


@pytest.fixture(scope="module")
def make(device: CpuDevice) -> Iterator[Make]:
    """Starts residencies of three times the same small model, with room for two."""
    spec = Catalog.load().find("sentence-transformers/all-MiniLM-L6-v2").spec
    catalog = Catalog([spec.model_copy(update={"id": name}) for name in MODELS])
    limits = EngineLimits(budget_bytes=220 * MIB)
    with ExitStack() as ending:

        def started(**more: Any) -> Residency:
            residency = Residency(
                catalog,
                device,
                limits.budget_bytes,
                Silent(),
                clock=time.monotonic,
                floor_tokens=floor_tokens(limits, device),
                policy=EvictionPolicy(min_stay_s=0.0, pace_s=0.0),
                **more,
            )
            residency.start()
            ending.callback(residency.stop)
            return residency

        yield started


@pytest.fixture(scope="module")
def residency(make: Make) -> Residency:
    """One without room in host memory."""
    return make()


def used(residency: Residency, model: str) -> ModelState:
    residency.acquire(model, PATIENCE_S)
    residency.release(model)
    return state(residency, model)


def state(residency: Residency, model: str) -> ModelState:
    return next(m for m in residency.snapshot()[0] if m.model == model)


def resident_bytes(device: CpuDevice) -> int:
    device.clear(thorough=True)
    return device.probe().ours


def test_the_files_headers_tell_what_the_weights_take(residency: Residency) -> None:
    found = used(residency, "first")
    assert found.bytes == pytest.approx(found.estimate, rel=0.05)
    assert residency.snapshot()[1].weights == found.bytes


def test_the_books_agree_with_the_process(residency: Residency, device: CpuDevice) -> None:
    # The first load brings the libraries too.
    used(residency, "first")
    before = resident_bytes(device)
    found = used(residency, "second")
    grown = resident_bytes(device) - before
    # Tokenizers are on top, and the same for a large model as for this one: some 20 MiB.
    assert found.bytes * 0.95 <= grown <= found.bytes * 1.05 + 25 * MIB


def test_loads_and_evictions_leave_nothing_behind(residency: Residency, device: CpuDevice) -> None:
    sizes = []
    for model in islice(cycle(MODELS), 12):
        used(residency, model)
        sizes.append(device.probe().ours)
        assert residency.snapshot()[1].weights <= 220 * MIB
    assert sum(m.evictions for m in residency.snapshot()[0]) >= 5
    # In steps of a whole model if one were left behind.
    assert max(sizes[6:]) - min(sizes[3:6]) < 40 * MIB


def test_an_evicted_model_gives_its_memory_back_without_a_look_at_all_objects(
    residency: Residency, device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    used(residency, "first")
    thorough: list[bool] = []
    clear = device.clear

    def watched(**how: bool) -> None:
        thorough.append(how.get("thorough", False))
        clear(**how)

    monkeypatch.setattr(device, "clear", watched)
    before = device.probe().ours
    weights = residency.snapshot()[1].weights
    assert residency.relieve()
    freed = weights - residency.snapshot()[1].weights
    assert before - device.probe().ours >= freed * 0.95
    assert not any(thorough)
    assert Phase.ABSENT in {m.phase for m in residency.snapshot()[0]}


def test_a_model_comes_back_from_host_memory_in_a_fraction_of_its_load(make: Make) -> None:
    residency = make(host_bytes=220 * MIB)
    for model in islice(cycle(MODELS), 9):
        used(residency, model)
        ledger = residency.snapshot()[1]
        assert ledger.weights <= 220 * MIB
        assert ledger.host <= 220 * MIB
    models = residency.snapshot()[0]
    assert [m.loads for m in models] == [1, 1, 1]
    returned = [m for m in models if m.restores]
    assert returned
    assert all(m.restore_s < m.load_s / 4 for m in returned)
    parked = [m for m in models if m.phase is Phase.PARKED]
    assert len(parked) == 1
    assert parked[0].host_bytes == pytest.approx(parked[0].estimate, rel=0.05)
    residency.stop()
