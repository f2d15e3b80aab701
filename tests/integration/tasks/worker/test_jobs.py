"""Jobs through a real worker: they run once, end once, leave nothing behind, and show themselves without their text."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from celery.events.state import State

from catalog.terms import Lane
from tasks.celery import make_app
from tasks.messages import Submission, pack
from tasks.settings import Settings
from tests.integration.tasks.worker.stage import TEXT, Stage

Monitor = Callable[[], State]


@pytest.fixture
def monitor(broker_url: str) -> Iterator[Monitor]:
    """What a monitor such as Flower makes of the events so far; nothing it hears may hold the text."""
    app = make_app(Settings(broker_url=broker_url))
    state, heard = State(), list[str]()

    def hear(event: dict[str, Any]) -> None:
        state.event(event)
        heard.append(json.dumps(event))

    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": hear})
        thread = threading.Thread(target=receiver.capture, kwargs={"limit": None, "timeout": None})
        thread.start()
        yield lambda: state
        receiver.should_stop = True
        thread.join(5.0)
    _assert_no_text(heard)
    app.close()


def _assert_no_text(said: Sequence[str]) -> None:
    assert said
    hidden = base64.b64encode(TEXT.encode()).decode()[4:-4]
    assert not any(TEXT in words or hidden in words for words in said)


def test_jobs_of_both_lanes_run_once_and_leave_nothing_in_the_broker(stage: Stage) -> None:
    jobs = [stage.job(lane=lane) for lane in Lane for _ in range(50)]
    stage.start()
    stage.publish(*jobs)
    stage.until_all_ended(100)
    assert set(stage.books.ended().values()) == {"succeeded"}
    assert set(stage.books.runs().values()) == {1}
    assert {lost for job in jobs for lost in stage.books.told(job)} == {0}


def test_events_tell_each_end_as_it_was(stage: Stage, monitor: Monitor) -> None:
    good, bad, dropped = stage.job(), stage.job(do="fail"), stage.job(seconds=30)
    stage.start()
    stage.publish(good, bad)
    stage.until(lambda: len(stage.books.ended()) == 2)
    stage.publish(dropped)
    stage.until(lambda: len(stage.books.runs()) == 3)
    stage.cancel(dropped)

    def task(job: Submission) -> Any:
        return monitor().tasks.get(str(job.id))

    wanted = {good.id: "SUCCESS", bad.id: "FAILURE", dropped.id: "REVOKED"}
    stage.until(lambda: {job.id: task(job) and task(job).state for job in (good, bad, dropped)} == wanted)
    assert task(good).runtime == pytest.approx(0.001)
    assert task(good).started >= task(good).received
    assert task(bad).exception == "model_failed"


def test_a_worker_without_events_sends_none_of_its_tasks(stage: Stage, monitor: Monitor) -> None:
    stage.start(events="off")
    stage.until(lambda: monitor().workers)
    for count in (1, 2):
        stage.publish(stage.job())
        stage.until_all_ended(count)
    assert not monitor().tasks


def test_inspect_shows_what_runs_and_what_waits_but_no_text(stage: Stage) -> None:
    app = make_app(Settings(broker_url=stage.url))
    running, waiting = stage.job(seconds=30), stage.job()
    stage.start()
    stage.publish(running)
    stage.until(stage.books.runs)
    stage.publish(waiting)
    stage.until(lambda: stage.books.told(waiting))
    inspect = app.control.inspect(timeout=5.0, limit=1)
    (active,), (reserved,) = inspect.active().values(), inspect.reserved().values()
    queried = inspect.query_task(str(waiting.id))
    assert [task["id"] for task in active] == [str(running.id)]
    assert [task["id"] for task in reserved] == [str(waiting.id)]
    _assert_no_text([json.dumps([active, reserved, queried])])
    app.close()


def test_the_same_worker_runs_on_the_stock_transport(stock_stage: Stage) -> None:
    stock_stage.start()
    stock_stage.publish(*(stock_stage.job() for _ in range(50)))
    stock_stage.until_all_ended(50)
    assert set(stock_stage.books.runs().values()) == {1}


def test_a_message_that_is_no_job_is_dropped_and_others_run(stage: Stage) -> None:
    app = make_app(Settings(broker_url=stage.url))
    worker = stage.start()
    app.send_task("roost.run", args=(), queue="interactive.xs", kwargs={"text": TEXT})
    app.send_task("roost.run", args=(base64.b64encode(pack(stage.job())).decode(),), queue="interactive.xs")
    good = stage.job()
    stage.publish(good)
    stage.until_all_ended(1)
    assert list(stage.books.ended()) == [str(good.id)]
    _assert_no_text([worker.said])
    app.close()
