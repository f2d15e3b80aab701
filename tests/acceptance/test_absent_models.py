"""A model that loads, or hangs in its load, keeps no job of another model waiting, however many ask for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import pytest

from tests.acceptance.fakes import fake

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]
MakeCaller = Callable[[Any], Any]

FLOOD = 1100
LOAD_S = 6.0


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(
        lanes=1,
        load_limit_s=15.0,
        pinned="here",
        models={"here": fake(), "cold": fake(load_seconds=LOAD_S), "hanging": fake(load_seconds=10_000)},
    )


@pytest.fixture
def someone(stack: Any, caller: MakeCaller) -> Any:
    return caller(stack)


def took(someone: Any) -> float:
    """How long a job of the model that is there takes."""
    began = time.monotonic()
    assert someone.post(["quick"], "here", wait=30).json()["status"] == "succeeded"
    return time.monotonic() - began


def flood(stack: Any, someone: Any, model: str) -> list[str]:
    """The ids of many jobs, which a worker finds when it starts."""
    stack.worker.stop()
    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(lambda n: someone.submit([f"text {n}"], model), range(FLOOD)))
    stack.worker.start()
    return ids


@pytest.mark.parametrize("model", ["cold", "hanging"])
def test_jobs_of_a_model_that_is_there_do_not_wait_for_one_that_is_not(stack: Any, someone: Any, model: str) -> None:
    alone = [took(someone) for _ in range(10)]
    waiting = flood(stack, someone, model)
    child = stack.worker.children()
    beside = [took(someone) for _ in range(5)]
    assert stack.worker.children() == child
    assert {someone.job(id_)["status"] for id_ in (waiting[0], waiting[-1])} == {"queued"}, "too late to tell"
    print(f"{model}: alone {median(alone) * 1000:.0f} ms, beside {FLOOD} jobs {median(beside) * 1000:.0f} ms")
    assert max(beside) < max(1.0, 5 * max(alone))
    if model == "cold":
        assert {job["status"] for job in someone.ends(waiting).values()} == {"succeeded"}
