from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog.errors import WeightsReason, WeightsUnavailable
from catalog.schema import Spec, Stay
from engine.adapters.base import Place
from engine.adapters.fake import FakeAdapter
from engine.device import CpuDevice, FakeDevice
from engine.errors import LoadFailed, LoadReason
from engine.failures import COOL_DOWN_S
from engine.snapshot import Departure, Phase, Reason
from tests.unit.engine.recorder import PATIENCE_S
from tests.unit.engine.watching import MakeResidency, Pool, Watching, held, state

MakeSpec = Callable[..., Spec]


def test_an_idle_model_leaves_after_its_keep_alive(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"a": {"bytes": 100}}, keep_alive_s=0.02)
    held(residency, "a")
    watching.until("left", "a")
    found = state(residency, "a")
    assert (found.phase, found.evicted) == (Phase.ABSENT, {Reason.IDLE: 1})
    assert residency.snapshot()[1].weights == 0


def test_an_idle_model_leaves_for_host_memory(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"a": {"bytes": 100, "parks": True}}, keep_alive_s=0.02, host_bytes=100)
    held(residency, "a")
    watching.until("left", "a")
    assert state(residency, "a").phase is Phase.PARKED


def test_a_leased_model_outlives_its_keep_alive(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"a": {}}, keep_alive_s=0.0)
    residency.acquire("a", PATIENCE_S)
    watching.never("left", "a")
    residency.release("a")
    watching.until("left", "a")


def test_a_specs_own_keep_alive_goes_before_the_setting(
    make_residency: MakeResidency, make_spec: MakeSpec, watching: Watching
) -> None:
    specs = [make_spec("a").model_copy(update={"stay": Stay(keep_alive_s=0.01)}), make_spec("b")]
    residency = make_residency(specs, keep_alive_s=3600.0)
    held(residency, "b", "a")
    watching.until("left", "a")
    assert state(residency, "b").phase is Phase.RESIDENT


def test_a_keep_alive_of_zero_in_a_spec_keeps_it_until_room_is_needed(
    make_residency: MakeResidency, make_spec: MakeSpec, watching: Watching
) -> None:
    specs = [make_spec("a").model_copy(update={"stay": Stay(keep_alive_s=0.0)}), make_spec("b")]
    residency = make_residency(specs, keep_alive_s=0.02)
    held(residency, "a", "b")
    watching.until("left", "b")
    watching.never("left", "a")
    assert state(residency, "a").phase is Phase.RESIDENT


def test_models_that_their_specs_preload_or_pin_are_there_at_once(
    make_residency: MakeResidency, make_spec: MakeSpec, watching: Watching
) -> None:
    specs = [
        make_spec("first", bytes=100).model_copy(update={"stay": Stay(preload=True)}),
        make_spec("kept", bytes=700).model_copy(update={"stay": Stay(pinned=True)}),
        make_spec("other", bytes=300),
    ]
    residency = make_residency(specs)
    watching.until("ready", "first")
    watching.until("ready", "kept")
    residency.unwant("first")
    held(residency, "other")
    assert state(residency, "kept").pinned
    assert [state(residency, name).phase for name in ("first", "kept")] == [Phase.ABSENT, Phase.RESIDENT]


def test_an_eviction_says_why_and_for_whom(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"a": {"bytes": 600}, "b": {"bytes": 600}}, clock=time.monotonic)
    held(residency, "a", "b")
    departure = state(residency, "a").departure
    assert departure == Departure(departure.at if departure else 0.0, Reason.ROOM, "b")
    assert ("left", "a") in watching.events


def test_what_a_model_took_is_what_its_next_load_reserves(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"bytes": 400, "actual_bytes": 700}, "b": {"bytes": 400}})
    held(residency, "a")
    assert (state(residency, "a").bytes, state(residency, "a").estimate) == (700, 400)
    held(residency, "b", "a")
    # The estimate alone would have left b its place, and the measurement then have taken it.
    assert state(residency, "b").evicted == {Reason.ROOM: 1}


def test_activations_are_as_measured_once_the_adapter_can_tell(
    make_residency: MakeResidency, monkeypatch: pytest.MonkeyPatch
) -> None:
    residency = make_residency({"a": {"activation_bytes": 10}, "b": {"bytes": 1000}})
    held(residency, "a")
    assert residency.per_token("a") == 10
    monkeypatch.setattr(FakeAdapter, "measured_per_token", lambda _: 7)
    held(residency, "a")
    assert residency.per_token("a") == 7
    monkeypatch.setattr(FakeAdapter, "measured_per_token", lambda _: None)
    residency.relieve()
    held(residency, "a")
    assert residency.per_token("a") == 7


def test_two_loads_at_once_reserve_room_without_overshooting(make_residency: MakeResidency) -> None:
    models = {name: {"bytes": 350, "load_seconds": 0.002} for name in "abcdefgh"}
    pool = Pool(2**40)
    residency = make_residency(models, loaders=2, account=pool)
    most = []

    def use(names: str) -> None:
        for name in names:
            residency.acquire(name, PATIENCE_S)
            most.append(residency.snapshot()[1].weights)
            residency.release(name)

    threads = [threading.Thread(target=use, args=(names * 4,)) for names in ("abcdefgh", "hgfedcba", "badcfehg")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.most <= 1000
    assert len(most) == 96


def test_room_that_one_model_leaves_is_taken_by_two_only_once_it_has_gone(
    make_residency: MakeResidency, watching: Watching
) -> None:
    pool = Pool(2**40)
    models = {"large": {"bytes": 900}, "one": {"bytes": 400}, "two": {"bytes": 400}}
    residency = make_residency(models, loaders=2, account=pool)
    residency.acquire("large", PATIENCE_S)
    residency.want("one")
    residency.want("two")
    watching.until("started", "one")
    watching.until("started", "two")
    watching.never("ready", "two")
    residency.release("large")
    watching.until("ready", "one")
    watching.until("ready", "two")
    assert pool.most == 900


def test_two_models_load_side_by_side(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"slow": {"load_seconds": 600.0}, "quick": {}}, loaders=2)
    residency.want("slow")
    watching.until("started", "slow")
    held(residency, "quick")
    assert state(residency, "slow").phase is Phase.LOADING
    assert state(residency, "slow").loading_s is not None


def test_a_load_waits_for_memory_that_another_worker_has(make_residency: MakeResidency, watching: Watching) -> None:
    pool = Pool(1000)
    pool.taken = 700
    residency = make_residency({"a": {"bytes": 500}, "b": {"bytes": 200}}, account=pool)
    residency.want("a")
    watching.until("ended", "a")
    held(residency, "b")
    assert not watching.errors
    pool.taken = 0
    watching.until("ready", "a")
    assert pool.share.held == 700


def test_a_load_that_another_worker_was_quicker_than_waits(make_residency: MakeResidency, watching: Watching) -> None:
    pool = Pool(1000)

    def snatch(model: str) -> None:
        watching._note("started", model)
        pool.room = lambda: 500  # type: ignore[method-assign]
        pool.taken = 900

    watching.load_started = snatch  # type: ignore[method-assign]
    residency = make_residency({"a": {"bytes": 500}}, account=pool)
    residency.want("a")
    watching.until("ended", "a")
    assert (state(residency, "a").phase, residency.snapshot()[1].weights) == (Phase.ABSENT, 0)
    pool.taken = 0
    watching.load_started = lambda model: None  # type: ignore[method-assign]
    watching.until("ready", "a")


def test_own_idle_models_leave_where_another_worker_has_the_room(make_residency: MakeResidency) -> None:
    pool = Pool(1000)
    residency = make_residency({"a": {"bytes": 400}, "b": {"bytes": 400}}, account=pool)
    held(residency, "a")
    pool.taken = 400
    held(residency, "b")
    assert state(residency, "a").phase is Phase.ABSENT
    assert pool.share.held + pool.taken <= 1000


def test_foreign_memory_fails_a_load_with_who_holds_what(make_residency: MakeResidency) -> None:
    device = FakeDevice(1000)
    device.foreign = 700
    residency = make_residency({"a": {"bytes": 500}}, device=device)
    with pytest.raises(LoadFailed, match=r"take 0, other workers hold 0; foreign 0\.0 GiB") as caught:
        residency.acquire("a", PATIENCE_S)
    assert caught.value.reason is LoadReason.OUT_OF_MEMORY
    assert caught.value.retryable


def test_the_account_is_left_at_the_end(make_residency: MakeResidency) -> None:
    pool = Pool(1000)
    residency = make_residency({"a": {"bytes": 400}}, account=pool)
    held(residency, "a")
    assert pool.share.held == 400
    residency.stop()
    assert (pool.share.held, pool.closed) == (0, True)


class HostedAdapter(FakeAdapter):
    """A fake that works in host memory."""

    place = Place.HOST


@pytest.fixture
def hosted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all fakes host-bound."""
    monkeypatch.setattr("engine.loader.adapter_class", lambda _: HostedAdapter)


@pytest.mark.usefixtures("hosted")
def test_a_host_bound_model_takes_host_memory(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"bytes": 300}, "b": {"bytes": 300}}, host_bytes=500)
    held(residency, "a", "b")
    ledger = residency.snapshot()[1]
    assert (ledger.weights, ledger.host) == (0, 300)
    assert (state(residency, "b").bytes, state(residency, "b").host_bytes) == (0, 300)
    assert state(residency, "a").evicted == {Reason.ROOM: 1}


@pytest.mark.usefixtures("hosted")
def test_on_a_cpu_a_host_bound_model_takes_the_devices_memory(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"bytes": 300}}, device=CpuDevice())
    held(residency, "a")
    assert (residency.snapshot()[1].weights, residency.snapshot()[1].host) == (300, 0)


@pytest.mark.usefixtures("hosted")
def test_a_host_bound_batch_without_memory_gets_that_of_idle_host_bound_models(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"bytes": 200, "parks": True}, "b": {"bytes": 200}}, host_bytes=1000)
    held(residency, "a", "b")
    residency.acquire("b", PATIENCE_S)
    assert not residency.relieve()
    assert residency.relieve("b")
    assert (state(residency, "a").phase, residency.snapshot()[1].host) == (Phase.ABSENT, 200)


def test_files_put_in_place_of_bad_ones_are_found(make_residency: MakeResidency, make_spec: MakeSpec) -> None:
    later = 0.0
    asked: list[str] = []

    def find(spec: Spec) -> Path | None:
        asked.append(spec.id)
        return None

    faults = [{"kind": "fail_load", "reason": "corrupt"}]
    residency = make_residency({"a": {"faults": faults}}, clock=lambda: time.monotonic() + later, find=find)
    for _ in range(2):
        with pytest.raises(LoadFailed):
            residency.acquire("a", PATIENCE_S)
        later += 61.0
    assert asked == ["a", "a"]


@pytest.mark.parametrize("reason", list(WeightsReason))
def test_files_that_cannot_be_had_fail_the_load_for_a_while(
    make_residency: MakeResidency, reason: WeightsReason
) -> None:
    later = 0.0
    answers: list[Any] = [WeightsUnavailable("No.", reason=reason)]

    def find(_: Spec) -> Path | None:
        if answers:
            raise answers.pop()
        return None

    residency = make_residency({"a": {}}, clock=lambda: time.monotonic() + later, find=find)
    with pytest.raises(LoadFailed) as caught:
        residency.acquire("a", PATIENCE_S)
    assert caught.value.reason.value == reason.value
    assert residency.refusal("a") is caught.value
    later = 601.0
    held(residency, "a")


@pytest.mark.parametrize("reason", sorted(set(LoadReason) - {LoadReason.CORRUPT, LoadReason.NOT_FOUND}))
def test_a_failed_load_of_any_kind_is_tried_again_once_it_has_cooled_down(
    make_residency: MakeResidency, reason: LoadReason
) -> None:
    later = 0.0
    faults = [{"kind": "fail_load", "reason": reason, "times": 1}]
    residency = make_residency({"a": {"faults": faults}}, clock=lambda: time.monotonic() + later)
    with pytest.raises(LoadFailed) as caught:
        residency.acquire("a", PATIENCE_S)
    later = COOL_DOWN_S[reason] - 1.0
    assert residency.refusal("a") is caught.value
    later = COOL_DOWN_S[reason] + 0.1
    held(residency, "a")
    assert caught.value.reason is reason


def test_a_load_that_hung_elsewhere_is_refused_here_until_it_has_cooled_down(make_residency: MakeResidency) -> None:
    later = 0.0
    residency = make_residency({"a": {}}, clock=lambda: time.monotonic() + later)
    error = LoadFailed("It took too long.", LoadReason.TIMEOUT)
    residency.fail("a", error)
    assert residency.refusal("a") is error
    later = COOL_DOWN_S[LoadReason.TIMEOUT] + 0.1
    held(residency, "a")


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (ImportError("No module named 'extra'"), LoadReason.DEPENDENCY),
        (MemoryError(), LoadReason.OUT_OF_MEMORY),
        (ConnectionError("reset"), LoadReason.NETWORK),
        (FileNotFoundError(2, "no such file"), LoadReason.NOT_FOUND),
        (EOFError(), LoadReason.CORRUPT),
        (KeyError("x"), LoadReason.UNKNOWN),
    ],
)
def test_what_a_library_raises_at_a_load_gets_its_reason(
    make_residency: MakeResidency, monkeypatch: pytest.MonkeyPatch, raised: Exception, reason: LoadReason
) -> None:
    def breaks(self: FakeAdapter) -> None:
        raise raised

    monkeypatch.setattr(FakeAdapter, "load", breaks)
    residency = make_residency({"a": {}})
    with pytest.raises(LoadFailed) as caught:
        residency.acquire("a", PATIENCE_S)
    assert caught.value.reason is reason


def test_a_model_whose_files_are_cut_short_fails_as_corrupt_and_the_others_serve(
    make_residency: MakeResidency, make_spec: MakeSpec, tmp_path: Path
) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [10], "data_offsets": [0, 40]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 39)
    (tmp_path / "config.json").write_text("{}")
    bad = make_spec("bad").model_copy(update={"family": "sentence_transformer"})
    residency = make_residency(
        [bad, make_spec("good")], find=lambda spec: tmp_path if spec.id == "bad" else None, find_here=lambda _: None
    )
    with pytest.raises(LoadFailed, match="cut short") as caught:
        residency.acquire("bad", PATIENCE_S)
    assert caught.value.reason is LoadReason.CORRUPT
    held(residency, "good")
