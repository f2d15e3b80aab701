"""When the engine child dies, hangs or loses its device: nobody's job is lost, and only what ran spends an attempt."""

from __future__ import annotations

import os
import signal

from tasks.worker import REFUSED
from tasks.worker.holding import FRESH, INTERRUPTED, OVERRAN, REPEATED
from tests.integration.tasks.worker.stage import Stage


def test_a_child_killed_in_a_batch_costs_only_that_batch_an_attempt(stage: Stage) -> None:
    running, waiting = stage.job(seconds=30, once=True), [stage.job() for _ in range(80)]
    stage.start()
    stage.publish(running)
    stage.until(stage.books.runs)
    stage.publish(*waiting)
    stage.until(lambda: stage.books.given() == 81)
    os.kill(stage.books.child(), signal.SIGKILL)
    stage.until_all_ended(81)
    assert stage.books.told(running) == [FRESH, INTERRUPTED]
    assert all(stage.books.told(job) == [FRESH, FRESH] for job in waiting)


def test_a_job_that_always_kills_its_child_is_given_up_and_its_neighbours_end(stage: Stage) -> None:
    poison, good = stage.job(do="die"), [stage.job() for _ in range(20)]
    stage.start()
    stage.publish(poison, *good)
    stage.until_all_ended(21)
    ended = stage.books.ended()
    assert ended.pop(str(poison.id)) == "failed"
    assert set(ended.values()) == {"succeeded"}


def test_a_batch_over_its_limit_ends_its_child_and_its_job_is_told_so(stage: Stage) -> None:
    endless, good = stage.job(do="hang", limit_s=0.3, once=True), stage.job()
    stage.start()
    stage.publish(endless)
    stage.until(stage.books.runs)
    stage.publish(good)
    stage.until(lambda: len(stage.books.ended()) == 2)
    assert stage.books.told(endless) == [FRESH, OVERRAN]
    assert stage.books.told(good)[0] == FRESH
    assert REPEATED not in stage.books.told(good)


def test_a_child_that_lost_its_device_is_replaced(stage: Stage) -> None:
    job = stage.job(do="lose_device", once=True)
    stage.start()
    stage.publish(job)
    stage.until(stage.books.ended)
    stage.until(lambda: stage.books.left() == 0)
    assert stage.books.told(job) == [FRESH, INTERRUPTED]


def test_what_a_worker_holds_goes_back_when_its_next_child_does_not_get_ready(stage: Stage) -> None:
    running, waiting = stage.job(seconds=30, once=True), [stage.job() for _ in range(5)]
    stage.start()
    stage.publish(running)
    stage.until(stage.books.runs)
    stage.publish(*waiting)
    stage.until(lambda: stage.books.given() == 6)
    stage.books.client.set("test:stillborn", 1)
    os.kill(stage.books.child(), signal.SIGKILL)
    stage.until(lambda: (stage.books.queued(), stage.books.in_hand()) == (6, 0))
    stage.books.client.delete("test:stillborn")
    stage.until_all_ended(6, 30.0)
    assert stage.books.told(running) == [FRESH, REPEATED]
    assert all(stage.books.told(job) == [FRESH, FRESH] for job in waiting)


def test_a_first_child_that_refuses_to_start_ends_its_worker_with_the_reason(stage: Stage) -> None:
    stage.books.client.set("test:refused", 1)
    worker = stage.start()
    assert worker.wait() == REFUSED
    assert "device_unavailable: The device is not there." in worker.said
    assert stage.books.born() == 1


def test_a_device_that_was_there_is_waited_for(stage: Stage) -> None:
    stage.start()
    stage.publish(stage.job())
    stage.until(lambda: len(stage.books.ended()) == 1)
    stage.books.client.set("test:refused", 1)
    os.kill(stage.books.child(), signal.SIGKILL)
    stage.until(lambda: stage.books.born() >= 3)
    stage.books.client.delete("test:refused")
    stage.publish(stage.job())
    stage.until_all_ended(2, 30.0)


def test_nothing_is_pulled_before_the_child_is_ready(stage: Stage) -> None:
    stage.start(child_delay=1)
    stage.publish(stage.job())
    stage.until(stage.books.born)
    assert stage.books.queued() == 1
    stage.until(stage.books.ended)
