"""Several workers: jobs go where their model is while that is no slower, and never wait beside an idle device."""

from __future__ import annotations

import pytest

from tasks import keys
from tasks.messages import Submission
from tests.integration.tasks.worker.stage import Stage, Worker

X, Y = "fake/x", "fake/y"


@pytest.fixture
def two(stage: Stage) -> tuple[Worker, Worker]:
    """Workers `one` and `two`, which know of each other; a load takes two seconds, as they say."""
    workers = stage.start("one", child_load=2), stage.start("two", child_load=2)
    _until_both_know(stage)
    return workers


def _until_both_know(stage: Stage) -> None:
    stage.until(lambda: stage.books.born() == 2 and stage.books.places().keys() == {"one", "two"})
    # A worker hears of the other as it tells of itself again.
    before = stage.books.places()
    stage.until(lambda: all(told != before[name] for name, told in stage.books.places().items()))


def _run(stage: Stage, *jobs: Submission) -> None:
    stage.publish(*jobs)
    stage.until(lambda: {str(job.id) for job in jobs} <= stage.books.ended().keys())


def _home(stage: Stage, model: str) -> str:
    """The worker that has the model, once one has."""
    first = stage.job(model=model)
    _run(stage, first)
    return stage.books.ran()[str(first.id)]


@pytest.mark.usefixtures("two")
def test_a_cold_model_stays_on_one_worker(stage: Stage) -> None:
    home = _home(stage, X)
    for _ in range(30):
        _run(stage, stage.job(model=X))
    assert stage.books.loads() == [(home, X)]
    assert set(stage.books.ran().values()) == {home}


@pytest.mark.usefixtures("two")
def test_a_job_left_to_the_worker_that_has_its_model_is_not_late(stage: Stage) -> None:
    _home(stage, X)
    for _ in range(20):
        job = stage.job(model=X)
        stage.publish(job)
        stage.until(lambda job=job: str(job.id) in stage.books.ended(), 1.0)  # type: ignore[misc]


@pytest.mark.usefixtures("two")
def test_a_flood_of_a_model_brings_it_to_the_idle_worker_too(stage: Stage) -> None:
    home = _home(stage, X)
    stage.publish(*(stage.job(cost_ms=300, seconds=0.05, model=X) for _ in range(300)))
    stage.until(lambda: len(stage.books.loads()) == 2)
    assert stage.books.loads() == [(home, X), ("two" if home == "one" else "one", X)]
    stage.until_all_ended(301, 60.0)


@pytest.mark.usefixtures("two")
def test_short_jobs_of_a_busy_workers_model_run_on_the_idle_one(stage: Stage) -> None:
    home = _home(stage, X)
    long, short = stage.job(cost_ms=30_000, seconds=3, model=X), [stage.job(model=X) for _ in range(10)]
    stage.publish(long)
    stage.until(lambda: str(long.id) in stage.books.ran())
    stage.publish(*short)
    stage.until(lambda: len(stage.books.ended()) == 11, 2.0)
    assert str(long.id) not in stage.books.ended()
    assert {stage.books.ran()[str(job.id)] for job in short}.isdisjoint({home})
    stage.until(lambda: stage.books.left() == 0)


def test_what_waits_and_what_is_held_add_up_to_all_that_is_open(stage: Stage) -> None:
    stage.start("one", pull_jobs=64, child_load=2)
    jobs = [stage.job(seconds=1.5, model=X) for _ in range(200)]

    def held_and_open() -> tuple[int, int]:
        with stage.books.client.pipeline(transaction=True) as pipe:
            pipe.hlen("unacked")
            pipe.scard(keys.HELD)
            in_hand, open_ = pipe.execute()
        return int(in_hand), int(open_)

    stage.publish(*jobs)
    # While the first batch runs, which brought the model; before that it may have only a part of the room.
    stage.until(lambda: held_and_open() == (64, 200))
    assert stage.books.queued() == 136
    stage.until_all_ended(200)


def test_another_worker_serves_a_dead_ones_models_within_its_lease(stage: Stage, two: tuple[Worker, Worker]) -> None:
    home = _home(stage, X)
    running = stage.job(cost_ms=1000, seconds=60, once=True, model=X)
    stage.publish(running)
    stage.until(lambda: str(running.id) in stage.books.ran())
    two[0 if home == "one" else 1].kill()
    waiting = [stage.job(model=X) for _ in range(5)]
    stage.publish(*waiting)
    stage.until(lambda: {str(job.id) for job in waiting} <= stage.books.ended().keys(), 4.5)


def test_a_worker_that_leaves_leaves_its_models_to_others_at_once(stage: Stage, two: tuple[Worker, Worker]) -> None:
    home = _home(stage, X)
    assert two[0 if home == "one" else 1].stop() == 0
    job = stage.job(model=X)
    stage.publish(job)
    stage.until(lambda: str(job.id) in stage.books.ended(), 1.0)


def test_a_flood_of_a_resident_model_lets_others_in(stage: Stage) -> None:
    """With another worker alive, which is busy, so that nothing but the wait decides."""
    for name in ("one", "two"):
        stage.start(name, pull_ms=100, child_load=2)
    _until_both_know(stage)
    stage.publish(*(stage.job(cost_ms=20, seconds=0.02, model=X) for _ in range(3000)))
    stage.until(lambda: {name for name, model in stage.books.loads() if model == X} == {"one", "two"}, 30.0)
    other = stage.job(model=Y)
    stage.publish(other)
    stage.until(lambda: str(other.id) in stage.books.ended(), 8.0)
    assert stage.books.queued() > 0


def test_jobs_of_a_model_that_one_worker_does_not_know_run_on_the_other(stage: Stage) -> None:
    stage.start("one", child_knows=X)
    stage.start("two", child_knows=f"{X},{Y}")
    _until_both_know(stage)
    jobs = [stage.job(model=Y) for _ in range(20)]
    for job in jobs:
        _run(stage, job)
    assert {stage.books.ran()[str(job.id)] for job in jobs} == {"two"}


def test_jobs_of_a_model_that_nobody_knows_are_taken_all_the_same(stage: Stage) -> None:
    for name in ("one", "two"):
        stage.start(name, child_knows=X)
    _until_both_know(stage)
    jobs = [stage.job(model=Y) for _ in range(20)]
    stage.publish(*jobs)
    stage.until(lambda: {str(job.id) for job in jobs} <= stage.books.ended().keys(), 10.0)


@pytest.mark.usefixtures("two")
def test_a_model_that_failed_to_load_goes_to_the_other_worker(stage: Stage) -> None:
    stage.books.client.sadd("test:unloadable", f"one {Y}", f"two {Y}")
    _run(stage, first := stage.job(model=Y))
    bad = stage.books.ran()[str(first.id)]
    stage.books.client.srem("test:unloadable", f"{'two' if bad == 'one' else 'one'} {Y}")
    jobs = [stage.job(model=Y) for _ in range(20)]
    stage.publish(*jobs)
    stage.until(lambda: {str(job.id) for job in jobs} <= stage.books.ended().keys(), 10.0)
    assert {stage.books.ended()[str(job.id)] for job in jobs} == {"succeeded"}
