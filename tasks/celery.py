"""The Celery application: `celery -A tasks.celery worker|beat|flower`.

A worker of job queues runs with `-P solo`: it is only a message loop, and the work is done by the engine child that it
starts (see `tasks.worker`). A worker of `jobs.sweep` is an ordinary one, and so is one of `webhooks`, which sends them
(see `tasks.webhooks`). None imports the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery import Celery, Task
from kombu import Exchange, Queue

from tasks import transport
from tasks.messages import TASK_NAME
from tasks.queues import SWEEP_QUEUE, WEBHOOK_QUEUE, queue_names
from tasks.settings import EventsMode, Settings

SWEEP_TASK = "roost.sweep"
DELIVER_TASK = "roost.deliver"

_EXCHANGE = Exchange("roost")
_REDIS_SCHEMES = ("roost://", "roosts://", "redis://", "rediss://")
_STOCK_PREFETCH = 128
"""With a stock transport a worker cannot tell the broker what it has room for, so it takes no more jobs than this."""


class JobTask(Task):  # type: ignore[misc]
    """A job. The worker's strategy hands its message to the engine child; it is never called."""

    name = TASK_NAME
    Strategy = "tasks.worker.strategy:jobs"
    Request = "tasks.worker.request:JobRequest"
    ignore_result = True
    acks_late = True

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Refuse: only a worker's strategy can run a job."""
        raise NotImplementedError("roost.run is run by a worker's engine child; submit a job instead of calling it")


class RoostApp(Celery):  # type: ignore[misc]
    """Celery with our settings beside its own configuration, which `inspect conf` and Flower show to whoever asks."""

    settings: Settings
    child: tuple[str, ...] | None = None
    sender: Any = None
    """What sends webhooks, in a worker that does."""


def make_app(settings: Settings, child: Sequence[str] | None = None) -> RoostApp:
    """The application of these settings. `child` is the command of the engine child, if not the real one."""
    transport.register()
    app = RoostApp("roost", broker=settings.broker_url or "roost://127.0.0.1:6379/0", set_as_current=False)
    app.conf.update(_configuration(settings))
    app.settings = settings
    app.child = tuple(child) if child is not None else None
    app.steps["worker"].add("tasks.worker.steps:EngineStep")
    app.steps["worker"].add("tasks.webhooks.steps:SenderStep")
    app.steps["consumer"].add("tasks.worker.steps:JobsStep")
    app.register_task(JobTask())

    @app.task(name=SWEEP_TASK, ignore_result=True, shared=False)  # type: ignore[untyped-decorator]
    def sweep() -> None:
        # Here, because the sweeper publishes and so needs this module, and a message loop needs no SQL.
        from tasks import sweeper

        sweeper.run(settings)

    @app.task(name=DELIVER_TASK, ignore_result=True, shared=False)  # type: ignore[untyped-decorator]
    def deliver() -> None:
        # What rings the bell in Valkey is quicker; this comes whatever became of that.
        if app.sender is not None:
            app.sender.wake()

    return app


def _configuration(settings: Settings) -> dict[str, Any]:
    doorbell = settings.doorbell or not settings.broker_url
    return {
        "result_backend": None,
        "task_serializer": "json",
        "result_serializer": "json",
        "event_serializer": "json",
        "accept_content": ["json"],
        "enable_utc": True,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_ignore_result": True,
        "task_send_sent_event": False,
        "task_create_missing_queues": False,
        "task_default_queue": SWEEP_QUEUE,
        "task_queues": [
            Queue(name, _EXCHANGE, routing_key=name) for name in (*queue_names(), SWEEP_QUEUE, WEBHOOK_QUEUE)
        ],
        "worker_consumer": "tasks.worker.consumer:Consumer",
        "worker_concurrency": 1,
        "worker_prefetch_multiplier": settings.pull_jobs if doorbell else min(settings.pull_jobs, _STOCK_PREFETCH),
        "worker_enable_prefetch_count_reduction": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_send_task_events": settings.events is EventsMode.ON,
        "worker_disable_rate_limits": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_channel_error_retry": True,
        "broker_transport_options": _transport_options(settings),
        "beat_schedule": {
            "sweep": {
                "task": SWEEP_TASK,
                "schedule": settings.sweep_s,
                "options": {"queue": SWEEP_QUEUE, "expires": settings.sweep_s},
            },
            "deliver": {
                "task": DELIVER_TASK,
                "schedule": settings.sweep_s,
                "options": {"queue": WEBHOOK_QUEUE, "expires": settings.sweep_s},
            },
        },
    }


def _transport_options(settings: Settings) -> dict[str, Any]:
    """What the Redis transports understand; the others would trip over it."""
    if settings.broker_url and not settings.broker_url.startswith(_REDIS_SCHEMES):
        return {}
    return {
        "visibility_timeout": settings.held_lease_s,
        "unacked_restore_interval": max(1.0, settings.held_lease_s / 4),
        "unacked_restore_throttle": 1,
        "priority_steps": [0],
        "queue_order_strategy": "round_robin",
        "socket_keepalive": True,
        "socket_timeout": 10.0,
        "socket_connect_timeout": 5.0,
    }


app = make_app(Settings.from_environment())
