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


def writer(*, max_new_tokens: int = 16, max_length: int = 4096, tools: bool = False, **load: Any) -> dict[str, Any]:
    """A model that answers prompts and conversations with words of no meaning, in no time."""
    return {
        "family": "fake_generator",
        "tasks": {"generate": {"max_new_tokens": max_new_tokens, "tools": tools}},
        "inputs": ["text", "messages"],
        "parameters": 0,
        "max_length": max_length,
        "load": load,
    }


def parser(*, max_length: int = 64, **load: Any) -> dict[str, Any]:
    """A model that reads documents of texts, whose pages end with form feeds."""
    return {
        "family": "fake_parser",
        "tasks": {"extract": {"kinds": ["document"]}},
        "parameters": 0,
        "max_length": max_length,
        "unit": "pages",
        "load": load,
    }
