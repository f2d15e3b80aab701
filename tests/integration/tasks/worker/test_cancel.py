"""A cancelled job's message is dropped wherever it is."""

from __future__ import annotations

from dataclasses import replace

from tests.integration.tasks.worker.stage import Stage


def test_a_job_that_waits_in_the_worker_never_runs(stage: Stage) -> None:
    running, kept, cancelled = stage.job(seconds=1), stage.job(), stage.job()
    stage.start()
    stage.publish(running)
    stage.until(stage.books.runs)
    stage.publish(kept, cancelled)
    stage.until(lambda: stage.books.given() == 3)
    stage.cancel(cancelled)
    stage.until_all_ended(3)
    assert stage.books.ended()[str(cancelled.id)] == "dropped"
    assert set(stage.books.runs()) == {str(running.id), str(kept.id)}


def test_a_job_cancelled_while_no_worker_runs_is_never_given_to_one(stage: Stage) -> None:
    cancelled, kept = stage.job(), stage.job()
    stage.publish(cancelled, kept)
    stage.cancel(cancelled)
    stage.start()
    stage.until(stage.books.ended)
    stage.until(lambda: stage.books.left() == 0)
    assert not stage.books.told(cancelled)


def test_a_job_tried_again_after_its_cancel_runs(stage: Stage) -> None:
    job = stage.job(seconds=30, once=True)
    stage.start()
    stage.publish(job)
    stage.until(stage.books.runs)
    stage.cancel(job)
    stage.until(lambda: stage.books.left() == 0)
    stage.publish(replace(job, fence=2, options={}))
    stage.until(lambda: stage.books.ended()[str(job.id)] == "succeeded")


def test_a_cancel_reaches_the_next_child_when_the_first_one_died(stage: Stage) -> None:
    fatal, cancelled = stage.job(do="die", once=True), stage.job()
    stage.start(child_delay=2)
    stage.publish(fatal, cancelled)
    stage.until(lambda: stage.books.told(cancelled))
    stage.cancel(cancelled)
    stage.until_all_ended(2)
    assert stage.books.ended() == {str(fatal.id): "succeeded", str(cancelled.id): "dropped"}
