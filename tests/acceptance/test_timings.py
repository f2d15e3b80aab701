"""Each job says where its time went, and that is true: held against declared times and against the caller's own clock.

What else the machine does can only make a part longer, so the best of three tries is looked at.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest

from tests.acceptance.fakes import timed as fake
from tests.acceptance.until import until

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]
MakeCaller = Callable[[Any], Any]

LOAD_MS, RUN_MS = 1_000.0, 500.0
CLOSE = 0.03


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(
        models={
            **{f"cold-{n}": fake(load_seconds=LOAD_MS / 1000) for n in range(3)},
            **{f"mixed-{n}": fake(50.0, load_seconds=0.5) for n in range(2)},
            "steady": fake(RUN_MS),
        },
    )


@pytest.fixture
def someone(stack: Any, caller: MakeCaller) -> Any:
    return caller(stack)


def parts(timings: Mapping[str, float]) -> float:
    return sum(value for name, value in timings.items() if name != "total_ms")


def runs(stack: Any, someone: Any) -> bool:
    """Whether a job runs just now; when none does, there is one more soon, in case all others have ended already."""
    if stack.client.get("/v1/jobs", params={"status": "running"}).json()["data"]:
        return True
    someone.submit(["one more"], "steady")
    return False


def unix(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def test_a_load_of_a_declared_second_is_a_second_of_loading(someone: Any) -> None:
    found = [someone.post(["a text"], f"cold-{n}", wait=30).json()["timings"] for n in range(3)]
    assert min(one["load_ms"] for one in found) == pytest.approx(LOAD_MS, rel=CLOSE)
    assert min(one["device_ms"] for one in found) < 0.1 * LOAD_MS


def test_a_run_of_a_declared_time_is_that_time_on_the_device(someone: Any) -> None:
    jobs = [someone.post(["a text"], "steady", wait=30).json() for _ in range(3)]
    assert min(job["timings"]["device_ms"] for job in jobs) == pytest.approx(RUN_MS, rel=CLOSE)
    assert min(job["cost"]["device_ms"] for job in jobs) == pytest.approx(RUN_MS, rel=CLOSE)


def test_the_time_in_which_the_worker_stands_still_is_time_in_the_queue(stack: Any, someone: Any) -> None:
    assert someone.post(["a text"], wait=30).json()["status"] == "succeeded"
    found = []
    for _ in range(3):
        stack.worker.signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            id_ = someone.submit(["a text"])
            # It does not end, so this takes a second.
            stack.client.get(f"/v1/jobs/{id_}", params={"wait": 1})
            stood_ms = (time.monotonic() - began) * 1000
        finally:
            stack.worker.signal(signal.SIGCONT)
        timings = someone.end(id_)["timings"]
        assert timings["queue_ms"] >= stood_ms - timings["admit_ms"] - 100
        found.append(timings["queue_ms"] / stood_ms)
    assert min(found) == pytest.approx(1.0, rel=0.05)


def test_the_parts_of_any_job_add_up_to_its_time_and_that_to_the_callers(stack: Any, someone: Any) -> None:
    """Cold and warm, alone and in batches, of one item and of many, and some that lost a try with their worker."""

    def run(number: int) -> tuple[dict[str, Any], float, float]:
        began = time.time()
        texts = [f"text {number} {n}" for n in range(1 + number % 5)]
        id_ = someone.submit(texts, ("mixed-0", "mixed-1", "steady")[number % 3])
        accepted = time.time()
        return someone.end(id_), began, accepted

    with ThreadPoolExecutor(24) as pool:
        ended = pool.map(run, range(48))
        until(lambda: runs(stack, someone))
        stack.worker.kill_child()
        jobs = list(ended)
    assert {job["status"] for job, *_ in jobs} == {"succeeded"}
    assert max(job["attempts"] for job, *_ in jobs) == 2
    for job, began, accepted in jobs:
        timings = job["timings"]
        assert parts(timings) == pytest.approx(timings["total_ms"], rel=0.02)
        own_ms = (unix(job["finished_at"]) - unix(job["created_at"])) * 1000
        assert timings["total_ms"] == pytest.approx(own_ms, rel=0.02, abs=1.0)
        # What a request waits before its body is read is in the caller's time alone.
        finished = unix(job["finished_at"])
        longest, shortest = (finished - began) * 1000, (finished - accepted) * 1000
        assert 0.98 * shortest - 1.0 <= parts(timings) <= 1.02 * longest + 1.0


def test_the_metrics_tell_where_the_time_went_and_of_a_child_that_died(stack: Any, someone: Any) -> None:
    stack.worker.kill_child()
    assert someone.post(["a text"], "steady", wait=30).json()["status"] == "succeeded"
    wanted = {
        'roost_worker_children_lost_total{device="cpu",fate="died"',
        'roost_job_stage_seconds_bucket{lane="interactive",le="1",stage="device",verb="encode"',
        'roost_model_cost_ratio_bucket{le="+Inf",model="steady"',
    }
    until(lambda: all(start in stack.client.get("/metrics").text for start in wanted), 20)
