from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from catalog.errors import WeightsReason, WeightsUnavailable
from catalog.loader import Catalog, Choice
from catalog.schema import Spec
from engine.adapters.fake import FakeAdapter, FakeOptions
from engine.device import CpuDevice, FakeDevice
from engine.errors import LoadFailed, LoadReason
from engine.loader import Reclaimer, build_adapter, load_adapter, unload_adapter
from engine.memory import Memory

MakeSpec = Callable[..., Spec]
MIB = 2**20


def choice(spec: Spec) -> Choice:
    return Catalog([spec]).find(spec.id)


def nowhere(spec: Spec) -> Path | None:
    return None


def built(spec: Spec) -> FakeAdapter:
    adapter = build_adapter(choice(spec), FakeDevice(), nowhere)
    assert isinstance(adapter, FakeAdapter)
    return adapter


def test_a_typo_in_the_load_options_is_named(make_spec: MakeSpec) -> None:
    with pytest.raises(LoadFailed, match=r"^m could not .*'byts': unknown; did you mean 'bytes'") as caught:
        built(make_spec(byts=1))
    assert caught.value.reason is LoadReason.CONFIG


def test_files_that_cannot_be_had_fail_with_their_reason(make_spec: MakeSpec) -> None:
    def gated(spec: Spec) -> Path | None:
        raise WeightsUnavailable("Accept the terms.", reason=WeightsReason.GATED)

    with pytest.raises(LoadFailed, match=r"Accept the terms\.") as caught:
        build_adapter(choice(make_spec()), FakeDevice(), gated)
    assert caught.value.reason is LoadReason.GATED


def test_the_profiles_options_reach_the_adapter(make_spec: MakeSpec) -> None:
    assert built(make_spec(bytes=123)).footprint().weights == 123


def test_a_load_is_measured_by_the_adapters_own_count(make_spec: MakeSpec) -> None:
    loaded = load_adapter(
        built(make_spec(bytes=100, actual_bytes=130, load_seconds=0.02)), FakeDevice(), time.monotonic
    )
    assert loaded.bytes == 130
    assert loaded.seconds >= 0.02


class Uncounted(FakeAdapter):
    """Takes real memory and does not say how much."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec, FakeOptions(), None, "cpu")
        self.block: np.ndarray[Any, Any] | None = None

    def load(self) -> None:
        self.block = np.ones(64 * MIB, dtype=np.uint8)

    def held(self) -> int | None:
        return None


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_without_a_count_of_its_own_the_growth_of_the_process_is_measured(make_spec: MakeSpec) -> None:
    loaded = load_adapter(Uncounted(make_spec()), CpuDevice(), time.monotonic)
    assert loaded.bytes == pytest.approx(64 * MIB, rel=0.05)


def test_a_failed_load_gives_back_what_it_took(make_spec: MakeSpec) -> None:
    adapter = built(make_spec(bytes=100, faults=[{"kind": "fail_load", "reason": "corrupt"}]))
    with pytest.raises(LoadFailed) as caught:
        load_adapter(adapter, FakeDevice(), time.monotonic)
    assert caught.value.reason is LoadReason.CORRUPT
    assert adapter.held() == 0


def test_an_unload_that_fails_is_no_failure_of_others(make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = built(make_spec())

    def breaks(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(adapter, "unload", breaks)
    unload_adapter(adapter, FakeDevice())


@pytest.fixture
def only_our_garbage() -> Iterator[None]:
    """Collections that pass over what other tests have imported, which takes most of their time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("only_our_garbage")
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_memory_is_flat_over_load_and_unload_cycles(make_spec: MakeSpec) -> None:
    device = CpuDevice()
    adapters = [built(make_spec(bytes=32 * MIB, allocate=True)) for _ in range(2)]
    sizes = []
    for cycle in range(50):
        adapter = adapters[cycle % 2]
        load_adapter(adapter, device, time.monotonic)
        unload_adapter(adapter, device)
        sizes.append(device.probe().ours)
    assert max(sizes[5:]) - min(sizes[5:]) < 8 * MIB


class Watched(CpuDevice):
    """A CPU that counts collections, and of which a script says what this process has on it."""

    def __init__(self, *ours: int) -> None:
        super().__init__()
        self.script = list(ours)
        self.cleared: list[bool] = []

    def probe(self) -> Memory:
        return Memory(self.total, self.total, self.script.pop(0) if len(self.script) > 1 else self.script[0])

    def clear(self, *, thorough: bool = False) -> None:
        self.cleared.append(thorough)


def test_what_came_back_by_itself_needs_no_collection() -> None:
    device = Watched(1000, 480)
    reclaimer = Reclaimer(device, lambda: 0.0)
    reclaimer.after(reclaimer.ours(), 1000)
    assert device.cleared == [False]


def test_what_did_not_come_back_is_looked_for_once_in_a_while() -> None:
    now = 100.0
    device = Watched(1000)
    reclaimer = Reclaimer(device, lambda: now, every_s=30.0)
    reclaimer.after(1000, 1000)
    reclaimer.after(1000, 1000)
    assert device.cleared == [False, True, False]
    now += 30.0
    reclaimer.after(1000, 1000)
    assert device.cleared == [False, True, False, False, True]


def test_where_memory_is_short_it_is_looked_for_at_once() -> None:
    device = Watched(1000)
    reclaimer = Reclaimer(device, lambda: 100.0)
    for _ in range(2):
        reclaimer.after(1000, 1000, urgent=True)
    assert device.cleared == [False, True] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_a_model_tied_in_a_cycle_gives_its_memory_back(make_spec: MakeSpec) -> None:
    device = CpuDevice()
    adapter = built(make_spec(bytes=64 * MIB, allocate=True))
    adapter.load()
    ring: list[Any] = [adapter.__dict__["_memory"]]
    ring.append(ring)
    reclaimer = Reclaimer(device, time.monotonic)
    gc.collect()
    before = reclaimer.ours()
    adapter.unload()
    del ring
    reclaimer.after(before, 64 * MIB)
    assert before - reclaimer.ours() > 60 * MIB


def test_what_the_process_grew_by_says_nothing_of_one_of_two_loads(make_spec: MakeSpec) -> None:
    loaded = load_adapter(Uncounted(make_spec()), CpuDevice(), time.monotonic, alone=False)
    assert loaded.bytes == 0


class _Weights:
    """Stands for the memory of a half loaded model."""


def test_a_failed_load_has_let_go_of_what_it_had_before_the_device_is_cleared(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[_Weights]] = []
    there: list[bool] = []

    def load(_: FakeAdapter) -> None:
        weights = _Weights()
        made.append(weakref.ref(weights))
        try:
            int("too deep to see")
        except ValueError as error:
            raise LoadFailed("No.", LoadReason.CONFIG) from error

    monkeypatch.setattr(FakeAdapter, "load", load)
    device = FakeDevice()
    monkeypatch.setattr(device, "clear", lambda **_: there.append(made[0]() is not None))
    with pytest.raises(LoadFailed, match=r"^No\.$"):
        load_adapter(built(make_spec()), device, time.monotonic)
    assert there == [False]


@pytest.mark.parametrize("error", [SystemExit(1), type("PanicException", (BaseException,), {})("index out of range")])
def test_what_is_no_exception_fails_a_load_like_any_other(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def load(_: FakeAdapter) -> None:
        raise error

    monkeypatch.setattr(FakeAdapter, "load", load)
    with pytest.raises(LoadFailed) as caught:
        load_adapter(built(make_spec()), FakeDevice(), time.monotonic)
    assert caught.value.reason is LoadReason.UNKNOWN
