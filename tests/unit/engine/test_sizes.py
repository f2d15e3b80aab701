from __future__ import annotations

import pytest

from engine.device import DeviceKind, FakeDevice
from engine.errors import InvalidBudget
from engine.sizes import parse_budget, parse_host_budget, parse_reserve

GIB = 2**30


class FakeCard(FakeDevice):
    """A fake device that passes for a card."""

    kind = DeviceKind.CUDA


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


@pytest.mark.parametrize(("text", "expected"), [("0", 0), ("5%", 5 * GIB), ("2GiB", 2 * GIB)])
def test_a_reserve_may_be_nothing_a_size_or_a_share(text: str, expected: int) -> None:
    assert parse_reserve(text, FakeDevice(100 * GIB)) == expected


@pytest.mark.parametrize("text", ["some", "100%", "101GiB"])
def test_a_reserve_that_leaves_nothing_or_is_no_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidBudget, match="ROOST_RESERVE"):
        parse_reserve(text, FakeDevice(100 * GIB))


def test_by_itself_a_quarter_of_the_host_is_kept_for_models_of_a_card_and_nothing_for_those_of_a_cpu() -> None:
    assert parse_host_budget("auto", FakeCard(100), 400) == 100
    assert parse_host_budget("auto", FakeDevice(100), 400) == 0


def test_a_host_budget_is_of_the_host_s_memory_and_not_of_the_device_s() -> None:
    assert parse_host_budget("50%", FakeCard(100), 400) == 200
    assert parse_host_budget("0", FakeCard(100), 400) == 0
    with pytest.raises(InvalidBudget, match="ROOST_HOST_BUDGET"):
        parse_host_budget("500", FakeCard(1000), 400)
