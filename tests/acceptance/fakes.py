"""Models that are none, as the YAML of a catalog: for stacks that need no weights."""

from __future__ import annotations

from typing import Any


def fake(*, max_length: int = 8192, **load: Any) -> dict[str, Any]:
    """A model that takes no time but what its load options declare."""
    return {
        "family": "fake",
        "tasks": {"encode": {"dims": 8}},
        "parameters": 0,
        "max_length": max_length,
        "load": {"dims": 8, **load},
    }


def timed(cost: float = 0.0, **load: Any) -> dict[str, Any]:
    """A model of which each batch takes `cost` milliseconds."""
    return fake(seconds_per_cost=0.001, **load) | {"cost": {"base": cost, "per_token": 0.0}}
