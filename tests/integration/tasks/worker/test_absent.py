"""A model that is not there keeps nobody else's jobs out of a worker, however long it takes and however many ask."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from catalog.terms import Lane
from tasks.messages import Submission
from tests.integration.tasks.worker.stage import Stage

COLD, OTHER = "fake/cold", "fake/other"
LOAD_S = 4.0


def _start(stage: Stage, **settings: Any) -> None:
    """A worker whose child is ready."""
    stage.start(**settings)
    stage.until(lambda: stage.books.client.exists("test:child"), 60.0)


def _flood(stage: Stage, count: int, **options: Any) -> list[Submission]:
    """Jobs of a cold model, once the worker holds as many of them as it ever will before it is there."""
    jobs = [stage.job(model=COLD, load_s=LOAD_S, **options) for _ in range(count)]
    stage.publish(*jobs)
    stage.until(stage.books.loads)
    return jobs


def _took(stage: Stage, job: Submission) -> float:
    """How long a job takes from its publish to its end."""
    began = time.monotonic()
    stage.publish(job)
    stage.until(lambda: str(job.id) in stage.books.ended())
    return time.monotonic() - began


def _cold_ended(stage: Stage, jobs: list[Submission]) -> int:
    return len({str(job.id) for job in jobs} & stage.books.ended().keys())


@pytest.mark.parametrize(("count", "cost_ms"), [(1100, 1.0), (80, 200.0)], ids=["many", "dear"])
def test_jobs_of_a_resident_model_run_while_another_loads_for_a_flood(stage: Stage, count: int, cost_ms: float) -> None:
    _start(stage)
    before = [_took(stage, stage.job()) for _ in range(5)]
    jobs = _flood(stage, count, cost_ms=cost_ms)
    beside = list[float]()
    while not _cold_ended(stage, jobs) and len(beside) < 20:
        beside.append(_took(stage, stage.job()))
    # All but one that may have met the end of the load.
    assert len(beside) > 5
    assert sorted(beside)[-2] < LOAD_S / 4 + 10 * max(before)
    stage.until_all_ended(count + 5 + len(beside), 60.0)


def test_a_second_cold_model_is_loaded_while_the_first_one_still_loads(stage: Stage) -> None:
    _start(stage)
    jobs = _flood(stage, 1100)
    other = stage.job(model=OTHER, load_s=0.1)
    stage.publish(other)
    stage.until(lambda: str(other.id) in stage.books.ended())
    assert not _cold_ended(stage, jobs)


def test_what_waits_for_a_model_stays_in_its_queue_and_is_pulled_when_it_has_come(stage: Stage) -> None:
    _start(stage)
    jobs = _flood(stage, 1100)
    stage.until(lambda: stage.books.queued() < 1100)
    assert stage.books.queued() > 500
    assert stage.books.in_hand() <= 1024 // 2
    # No bell rings any more: the model's coming alone tells.
    stage.until_all_ended(len(jobs), 60.0)


@pytest.mark.parametrize(("lane", "pull_jobs"), [(Lane.INTERACTIVE, 1), (Lane.BULK, 8)])
def test_a_small_hand_is_not_filled_by_a_cold_model(stage: Stage, lane: Lane, pull_jobs: int) -> None:
    _start(stage, pull_jobs=pull_jobs)
    jobs = _flood(stage, 100, lane=lane)
    resident = stage.job(lane=lane)
    stage.publish(resident)
    stage.until(lambda: str(resident.id) in stage.books.ended())
    assert not _cold_ended(stage, jobs)


def test_a_load_that_hangs_keeps_no_resident_model_out_before_it_is_ended(stage: Stage) -> None:
    _start(stage)
    _took(stage, stage.job())
    stage.publish(*(stage.job(model=COLD, load_s=3600, load_limit_s=6) for _ in range(1100)))
    stage.until(stage.books.loads)
    child = stage.books.child()
    for _ in range(5):
        _took(stage, stage.job())
    assert stage.books.child() == child
    stage.until(lambda: stage.books.born() == 2)


def test_jobs_in_hand_of_a_lost_child_keep_nobody_out_of_the_next(stage: Stage) -> None:
    _start(stage)
    jobs = _flood(stage, 1100)
    os.kill(stage.books.child(), signal.SIGKILL)
    stage.until(lambda: stage.books.born() == 2)
    resident = stage.job()
    stage.publish(resident)
    stage.until(lambda: str(resident.id) in stage.books.ended())
    assert not _cold_ended(stage, jobs)
