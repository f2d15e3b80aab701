"""Settings as the engine reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import machine
from engine.account import Share
from engine.device import CpuDevice, DeviceKind, FakeDevice
from engine.errors import InvalidBudget
from engine.eviction import EvictionOrder
from tasks.child.limits import account, engine_limits, eviction
from tasks.settings import Settings


class FakeCard(FakeDevice):
    """A fake device that passes for a card."""

    kind = DeviceKind.CUDA


def settings(**values: object) -> Settings:
    return Settings.model_validate(values)


def test_host_memory_is_a_quarter_of_the_machine_s_beside_a_card_and_nothing_on_a_cpu() -> None:
    assert engine_limits(settings(), FakeCard(1000)).host_bytes == machine.total_bytes() // 4
    assert engine_limits(settings(), CpuDevice()).host_bytes == 0
    assert engine_limits(settings(host_budget="1MiB"), CpuDevice()).host_bytes == 2**20


@pytest.mark.parametrize(("given", "expected"), [(0, None), (1.5, 1.5)])
def test_a_keep_alive_of_zero_is_none(given: float, expected: float | None) -> None:
    assert engine_limits(settings(keep_alive_s=given), FakeDevice()).keep_alive_s == expected


def test_what_is_set_reaches_the_engine() -> None:
    limits = engine_limits(settings(pinned="a, b", loaders=3, host_lanes=4, step_ms=7, budget="10%"), FakeDevice(1000))
    assert (limits.pinned, limits.loaders, limits.host_lanes, limits.step_ms) == (("a", "b"), 3, 4, 7.0)
    assert limits.budget_bytes == 100
    policy = eviction(settings(eviction="lru", min_stay_s=9, pace_s=7))
    assert (policy.order, policy.min_stay_s, policy.pace_s) == (EvictionOrder.LRU, 9.0, 7.0)


def test_the_account_keeps_the_reserve_in_the_folder_that_is_set(tmp_path: Path) -> None:
    shared = account(settings(ledger_dir=str(tmp_path / "ledger"), reserve="10%"), FakeDevice(1000))
    assert shared.room() == 900
    assert not shared.hold(Share(901))
    assert (tmp_path / "ledger").is_dir()
    shared.close()


def test_more_of_a_thing_than_there_is_is_refused_by_the_name_of_its_setting() -> None:
    with pytest.raises(InvalidBudget, match="ROOST_HOST_BUDGET"):
        engine_limits(settings(host_budget="900TiB"), CpuDevice())
    with pytest.raises(InvalidBudget, match="ROOST_RESERVE"):
        account(settings(reserve="100%"), FakeDevice(1000))
