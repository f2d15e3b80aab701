"""Sizes as operators write them: `8589934592`, `8GiB`, `8 GB`, `512M` (binary without the `B`), or `60%`. Pure."""

from __future__ import annotations

import re

from engine.device import Device, DeviceKind
from engine.errors import InvalidBudget

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{tail}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for tail, base in (("b", 1000), ("", 1024), ("ib", 1024))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b?|%)", re.IGNORECASE)
_HOST_PERCENT = 25


def parse_budget(text: str, device: Device) -> int:
    """The bytes that models may take of a device.

    Raises InvalidBudget for what is no size, for nothing, and for more than the device has.
    """
    return _within(text, "ROOST_BUDGET", device.total, device.name, least=1)


def parse_reserve(text: str, device: Device) -> int:
    """The bytes of a device that no process may take; 0 keeps none. Raises InvalidBudget, also for all of it."""
    reserve = _within(text, "ROOST_RESERVE", device.total, device.name, least=0)
    if reserve == device.total:
        raise InvalidBudget(f"ROOST_RESERVE={text[:50]!r} is all of {device.name}: leave something for models.")
    return reserve


def parse_host_budget(text: str, device: Device, host_total: int) -> int:
    """The bytes of host memory for models that left the device. Raises InvalidBudget.

    `auto` is a quarter of the host's memory beside a card, and nothing on a CPU, where it would be the same memory.
    """
    if text.strip().lower() == "auto":
        return host_total * _HOST_PERCENT // 100 if device.kind is DeviceKind.CUDA else 0
    return _within(text, "ROOST_HOST_BUDGET", host_total, "this machine", least=0)


def _within(text: str, setting: str, total: int, owner: str, *, least: int) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidBudget(f"{setting}={text[:50]!r} is no size: give bytes, 8GiB, or a share such as 60%.")
    amount, unit = float(match[1]), match[2].lower()
    size = int(total * amount / 100) if unit == "%" else int(amount * _UNITS[unit])
    if not least <= size <= total:
        raise InvalidBudget(
            f"{setting}={text[:50]!r} is {size} bytes, but {owner} has {total}: "
            f"give {'more than nothing and ' if least else ''}no more than that."
        )
    return size
