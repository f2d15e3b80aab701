"""How a worker ends: warm, it hands back what has not started; cold or killed, its messages return by themselves."""

from __future__ import annotations

import signal
import time

import pytest

from catalog.terms import Lane
from tasks.messages import Submission
from tasks.worker.holding import FRESH, REPEATED, SHY_JOBS
from tests.integration.tasks.worker.stage import Stage, Worker

Full = tuple[Worker, Submission, list[Submission]]

WAITING = 100
BEYOND_S = 3.0
"""How long an ending may take besides the batch that runs."""


@pytest.fixture
def full(stage: Stage) -> Full:
    """A worker that runs one job for a second and holds many more, of both lanes."""
    lanes = [Lane.INTERACTIVE] * (WAITING - SHY_JOBS) + [Lane.BULK] * SHY_JOBS
    running, waiting = stage.job(seconds=1.0), [stage.job(lane=lane) for lane in lanes]
    worker = stage.start()
    stage.publish(running)
    stage.until(stage.books.runs)
    stage.publish(*waiting)
    stage.until(lambda: stage.books.given() == WAITING + 1)
    return worker, running, waiting


def test_a_warm_shutdown_ends_what_runs_and_returns_the_rest_untouched(full: Full, stage: Stage) -> None:
    worker, running, waiting = full
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < 1.0 + BEYOND_S
    assert stage.books.ended() == {str(running.id): "succeeded"}
    assert (stage.books.queued(), stage.books.in_hand()) == (WAITING, 0)
    stage.start()
    stage.until_all_ended(WAITING + 1)
    assert set(stage.books.runs().values()) == {1}
    assert all(stage.books.told(job) == [FRESH, FRESH] for job in waiting)


def test_what_outlasts_the_grace_is_returned_as_interrupted(stage: Stage) -> None:
    job = stage.job(seconds=30, once=True)
    worker = stage.start(shutdown_s=0.5)
    stage.publish(job)
    stage.until(stage.books.runs)
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < BEYOND_S
    assert stage.books.queued() == 1
    stage.start()
    stage.until(stage.books.ended)
    assert stage.books.told(job) == [FRESH, REPEATED]


def test_a_cold_shutdown_returns_everything_at_once(full: Full, stage: Stage) -> None:
    worker, _, _ = full
    began = time.monotonic()
    worker.signal(signal.SIGQUIT)
    worker.wait()
    assert time.monotonic() - began < BEYOND_S
    assert stage.books.queued() == WAITING + 1


def test_a_worker_whose_child_is_not_ready_ends_at_once(stage: Stage) -> None:
    worker = stage.start(child_delay=20)
    stage.until(stage.books.born)
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < BEYOND_S + 1.5


def test_the_messages_of_a_killed_worker_return_when_their_lease_ends(full: Full, stage: Stage) -> None:
    worker, running, waiting = full
    worker.kill()
    stage.start(held_lease_s=2)
    stage.until_all_ended(WAITING + 1)
    assert {tuple(stage.books.told(job)) for job in (running, *waiting)} == {(FRESH, REPEATED)}


@pytest.mark.slow
def test_no_job_is_lost_however_often_workers_are_killed_under_load(stage: Stage) -> None:
    jobs = list[Submission]()
    for _ in range(3):
        worker = stage.start(held_lease_s=2)
        for _ in range(20):
            some = [stage.job(seconds=0.005) for _ in range(10)]
            stage.publish(*some)
            jobs += some
        wanted = len(stage.books.runs()) + 64
        stage.until(lambda wanted=wanted: len(stage.books.runs()) >= wanted)  # type: ignore[misc]
        worker.kill()
    stage.start(held_lease_s=2)
    stage.until_all_ended(len(jobs), 30.0)


def test_a_stock_transport_gets_back_what_has_not_started(stock_stage: Stage) -> None:
    worker = stock_stage.start()
    stock_stage.publish(stock_stage.job(seconds=1.0))
    stock_stage.until(stock_stage.books.runs)
    stock_stage.publish(*(stock_stage.job() for _ in range(20)))
    stock_stage.until(lambda: stock_stage.books.given() == 21)
    assert worker.stop() == 0
    assert stock_stage.books.queued() == 20
    stock_stage.start()
    stock_stage.until_all_ended(21)
