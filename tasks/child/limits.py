"""From settings to the engine's limits."""

from __future__ import annotations

from engine.device import Device
from engine.engine import EngineLimits
from engine.sizes import parse_budget
from tasks.settings import Settings


def engine_limits(settings: Settings, device: Device) -> EngineLimits:
    """What the engine may take and how long it may take it."""
    return EngineLimits(
        lanes=settings.lanes,
        batch_tokens=settings.batch_tokens,
        batch_items=settings.batch_items,
        budget_bytes=parse_budget(settings.budget, device),
        batch_limit_s=settings.batch_limit_s,
        load_limit_s=settings.load_limit_s,
        preload=settings.preload_names,
    )
