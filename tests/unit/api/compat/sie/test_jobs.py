from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.compat.sie.jobs import SieJob, has_result, job_status
from tasks.jobs import Job, State
from tests.unit.api.compat.ends import ended


def job(state: State = State.SUCCEEDED, **more: Any) -> Job:
    done = ended("encode", [{"tokens": 1}, {"tokens": 2}], usage={"items": 2, "tokens": 3}).job
    return replace(done, state=state, **more)


def told(one: Job, *, done: int = 0, refs: list[str] | None = None) -> SieJob:
    return SieJob.model_validate(job_status(one, done=done, refs=refs or []))


@pytest.mark.parametrize(
    ("state", "more", "want"),
    [
        (State.QUEUED, {}, ("queued", "queued", None, None, 0)),
        (State.RUNNING, {}, ("running", "running", None, None, 1)),
        (State.SUCCEEDED, {}, ("succeeded", "ended", "succeeded", None, 2)),
        (State.SUCCEEDED, {"items_failed": 1}, ("succeeded", "ended", "partial", None, 2)),
        (State.CANCELLED, {}, ("cancelled", "ended", "cancelled", None, 0)),
        (State.EXPIRED, {}, ("failed", "ended", "expired", "DEADLINE_PASSED", 0)),
        (
            State.FAILED,
            {"error": {"code": "worker_lost", "message": "Gone."}},
            ("failed", "ended", "failed", "INFERENCE_ERROR", 0),
        ),
        (
            State.FAILED,
            {"items_failed": 2, "error": {"code": "all_items_failed", "message": "All."}},
            ("failed", "ended", "failed", "INFERENCE_ERROR", 2),
        ),
    ],
)
def test_each_state_in_the_peers_words(state: State, more: dict[str, Any], want: tuple[Any, ...]) -> None:
    one = told(job(state, **more), done=1)
    assert (one.state, one.phase, one.outcome, one.error_code, one.completed_items) == want


def test_units_and_links_are_those_of_the_chunk() -> None:
    (chunk,) = told(job(), refs=["http://x/0"]).output.chunks
    assert (chunk.items, chunk.units, chunk.ref, chunk.state) == (2, 3, "http://x/0", "succeeded")


@pytest.mark.parametrize(
    ("state", "failed", "has"),
    [
        (State.SUCCEEDED, 0, True),
        (State.SUCCEEDED, 1, True),
        (State.FAILED, 2, True),
        (State.FAILED, 0, False),
        (State.CANCELLED, 0, False),
        (State.RUNNING, 0, False),
    ],
)
def test_which_jobs_have_a_result(state: State, failed: int, has: bool) -> None:
    assert has_result(job(state, items_failed=failed)) == has
