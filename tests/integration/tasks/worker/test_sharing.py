"""A worker takes no more than it can run soon; the rest is for idle ones, and for the other lane."""

from __future__ import annotations

from catalog.terms import Lane
from tests.integration.tasks.worker.stage import Stage


def test_short_jobs_run_on_the_idle_worker_while_the_other_is_busy(stage: Stage) -> None:
    stage.start("one")
    stage.start("two")
    stage.until(lambda: stage.books.born() == 2)
    long, short = stage.job(cost_ms=30_000, seconds=3), [stage.job() for _ in range(10)]
    stage.publish(long)
    stage.until(stage.books.runs)
    stage.publish(*short)
    stage.until(lambda: len(stage.books.ended()) == 10, 2.0)
    assert str(long.id) not in stage.books.ended()
    stage.until(lambda: stage.books.left() == 0)


def test_a_busy_worker_leaves_jobs_to_one_that_is_free_sooner(stage: Stage) -> None:
    stage.start("one")
    stage.start("two")
    stage.until(lambda: stage.books.born() == 2)
    long = stage.job(cost_ms=1800, seconds=1.8)
    stage.publish(long)
    stage.until(stage.books.runs)
    for count in range(1, 9):
        stage.publish(stage.job(cost_ms=50, seconds=0.05))
        stage.until(lambda count=count: len(stage.books.runs()) > count)  # type: ignore[misc]
    stage.until(lambda: len(stage.books.ended()) == 8, 1.0)
    assert str(long.id) not in stage.books.ended()


def test_a_worker_holds_no_more_work_than_it_may(stage: Stage) -> None:
    stage.start(pull_ms=1000)
    stage.publish(stage.job(cost_ms=100, seconds=2))
    stage.until(stage.books.runs)
    stage.publish(*(stage.job(cost_ms=100) for _ in range(100)))
    given: list[int] = []

    def first_ended() -> bool:
        ended, told = stage.books.ended_and_given()
        if not ended:
            given.append(told)
        return ended > 0

    stage.until(first_ended)
    assert given[-1] == 10
    stage.until_all_ended(101)


def test_a_backfill_in_hand_does_not_keep_an_interactive_job_out(stage: Stage) -> None:
    stage.start(pull_ms=1000)
    stage.publish(*(stage.job(cost_ms=100, lane=Lane.BULK, seconds=2) for _ in range(100)))
    stage.until(lambda: stage.books.given() >= 4)
    quick = stage.job()
    stage.publish(quick)
    stage.until(lambda: stage.books.told(quick), 1.5)
    assert not stage.books.ended()


def test_a_flood_of_interactive_jobs_lets_a_bulk_job_in(stage: Stage) -> None:
    stage.start(pull_ms=100)
    stage.publish(*(stage.job(cost_ms=20, seconds=0.01) for _ in range(400)))
    bulk = stage.job(lane=Lane.BULK)
    stage.publish(bulk)
    stage.until(lambda: str(bulk.id) in stage.books.ended())
    assert len(stage.books.ended()) < 400
