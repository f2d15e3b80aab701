"""The Celery application as workers, beat and publishers find it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tasks.celery import SWEEP_TASK, make_app
from tasks.messages import TASK_NAME
from tasks.queues import SWEEP_QUEUE, WEBHOOK_QUEUE, queue_names
from tasks.settings import EventsMode, Settings

ROOST = Settings(broker_url="roost://127.0.0.1:1/0")


def test_every_queue_is_declared_and_no_other_is_made_up() -> None:
    app = make_app(ROOST)
    assert set(app.amqp.queues) == {*queue_names(), SWEEP_QUEUE, WEBHOOK_QUEUE}
    with pytest.raises(KeyError):
        app.amqp.queues["typo"]


def test_a_job_cannot_be_called() -> None:
    task = make_app(ROOST).tasks[TASK_NAME]
    with pytest.raises(NotImplementedError, match="submit a job"):
        task("argument")


def test_the_sweep_is_scheduled_and_expires_with_its_interval() -> None:
    app = make_app(Settings(broker_url="roost://127.0.0.1:1/0", sweep_s=7))
    entry = app.conf.beat_schedule["sweep"]
    assert (entry["task"], entry["schedule"]) == (SWEEP_TASK, 7)
    assert entry["options"] == {"queue": SWEEP_QUEUE, "expires": 7}
    assert SWEEP_TASK in app.tasks


@pytest.mark.parametrize("mode", EventsMode)
def test_events_follow_the_setting(mode: EventsMode) -> None:
    app = make_app(Settings(broker_url="roost://127.0.0.1:1/0", events=mode))
    assert app.conf.worker_send_task_events is (mode is EventsMode.ON)


def test_only_json_is_accepted_and_no_result_is_kept() -> None:
    conf = make_app(ROOST).conf
    assert (conf.accept_content, conf.task_serializer, conf.result_backend) == (["json"], "json", None)


def test_a_stock_transport_prefetches_little_and_another_broker_gets_no_redis_options() -> None:
    assert make_app(ROOST).conf.worker_prefetch_multiplier == ROOST.pull_jobs
    assert make_app(Settings(broker_url="redis://127.0.0.1:1/0")).conf.worker_prefetch_multiplier < ROOST.pull_jobs
    assert make_app(Settings(broker_url="amqp://127.0.0.1:1/")).conf.broker_transport_options == {}


def test_nothing_heavy_reaches_the_parent() -> None:
    modules = "tasks.celery, tasks.worker.steps, tasks.worker.strategy, tasks.worker.consumer, tasks.worker.request"
    heavy = "{'torch', 'transformers', 'numpy', 'engine', 'sqlalchemy', 'tokenizers', 'fastapi'}"
    found = subprocess.run(
        [sys.executable, "-c", f"import sys, {modules}; print({heavy} & sys.modules.keys() or 'none')"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "none"


def test_secrets_are_not_in_what_celery_shows_of_its_configuration() -> None:
    secret = "hunter2"
    app = make_app(Settings(broker_url=f"roost://:{secret}@h/0", database_url=f"postgresql+psycopg://u:{secret}@h/d"))
    assert secret not in repr(app.conf.table(with_defaults=True))
    assert secret not in app.bugreport()


def test_two_applications_do_not_share_their_tasks() -> None:
    one, two = make_app(ROOST), make_app(Settings(broker_url="memory://"))
    assert one.tasks[TASK_NAME] is not two.tasks[TASK_NAME]
    assert one.conf.broker_url != two.conf.broker_url
