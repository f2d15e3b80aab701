"""Two real workers, each with models of its own: jobs go where their model is, until that is slower than a load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.until import until

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]
MakeCaller = Callable[[Any], Any]


def fake(**load: Any) -> dict[str, Any]:
    return {
        "family": "fake",
        "tasks": {"encode": {"dims": 8}},
        "parameters": 0,
        "max_length": 8192,
        "cost": {"base": 100.0, "per_token": 0.0},
        "load": {"dims": 8, "load_seconds": 1.0, **load},
    }


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    running = start_stack(
        lanes=1,
        batch_items=1,
        pull_ms=500,
        models={"quiet": fake(), "hot": fake(seconds_per_cost=0.001)},
    )
    running.add_worker("cpu2")
    return running


@pytest.fixture
def someone(stack: Any, caller: MakeCaller) -> Any:
    return caller(stack)


def loads(someone: Any, model: str) -> list[int]:
    """How often each of the workers that have loaded the model did so, the most first."""
    states = someone.client.get(f"/v1/models/{model}").json()["workers"]
    return sorted((int(state["loads"]) for state in states if state["loads"]), reverse=True)


def test_a_model_with_little_traffic_stays_on_the_worker_that_has_it(someone: Any) -> None:
    for number in range(40):
        assert someone.post([f"text {number}"], "quiet", wait=30).json()["status"] == "succeeded"
    until(lambda: bool(loads(someone, "quiet")))
    assert loads(someone, "quiet") == [1]


def test_a_flood_brings_a_model_to_the_idle_worker_too(someone: Any) -> None:
    assert someone.post(["first"], "hot", wait=30).json()["status"] == "succeeded"
    until(lambda: loads(someone, "hot") == [1])
    ids = [someone.submit([f"text {number}"], "hot") for number in range(80)]
    assert {job["status"] for job in someone.ends(ids).values()} == {"succeeded"}
    until(lambda: loads(someone, "hot") == [1, 1])
