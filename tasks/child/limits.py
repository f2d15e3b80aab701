"""From settings to what the engine may take, how long, and whom it gives up for whom."""

from __future__ import annotations

from pathlib import Path

from engine import machine
from engine.device import Device
from engine.engine import EngineLimits
from engine.eviction import EvictionOrder, EvictionPolicy
from engine.shared_account import SharedAccount
from engine.sizes import parse_budget, parse_host_budget, parse_reserve
from tasks.settings import Settings


def engine_limits(settings: Settings, device: Device) -> EngineLimits:
    """What the engine may take and how long it may take it. Raises InvalidBudget."""
    return EngineLimits(
        lanes=settings.lanes,
        batch_tokens=settings.batch_tokens,
        batch_items=settings.batch_items,
        budget_bytes=parse_budget(settings.budget, device),
        batch_limit_s=settings.batch_limit_s,
        load_limit_s=settings.load_limit_s,
        preload=settings.preload_names,
        pinned=settings.pinned_names,
        loaders=settings.loaders,
        host_bytes=parse_host_budget(settings.host_budget, device, machine.total_bytes()),
        host_lanes=settings.host_lanes,
        keep_alive_s=settings.keep_alive_s or None,
        step_ms=settings.step_ms,
    )


def eviction(settings: Settings) -> EvictionPolicy:
    """Who leaves a full device, and when."""
    return EvictionPolicy(
        order=EvictionOrder(settings.eviction.value), min_stay_s=settings.min_stay_s, pace_s=settings.pace_s
    )


def account(settings: Settings, device: Device) -> SharedAccount:
    """The account that all workers on the device share. Raises InvalidBudget or LedgerUnusable."""
    folder = Path(settings.ledger_dir) if settings.ledger_dir else None
    return SharedAccount(device, folder, parse_reserve(settings.reserve, device))
