"""How the parent joins Celery's life: one step for the worker, which owns the engine child, one for each connection."""

from __future__ import annotations

from typing import Any

from celery import bootsteps
from celery.exceptions import ImproperlyConfigured
from celery.worker import state

from tasks.queues import queue_names
from tasks.worker import control as _control  # noqa: F401 - registers the command
from tasks.worker.parent import Parent


class EngineStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Owns the child as long as the worker runs. Absent from a worker that consumes no job queue."""

    requires = ("celery.worker.components:Hub", "celery.worker.components:Pool")

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        worker.engine = None
        super().__init__(worker, **kwargs)

    def include_if(self, worker: Any) -> bool:
        """Whether any of the worker's queues holds jobs."""
        return not set(queue_names()).isdisjoint(worker.app.amqp.queues.consume_from)

    def create(self, worker: Any) -> None:
        """Make the parent, for the strategy and the other step to find."""
        if not worker.use_eventloop:
            raise ImproperlyConfigured("a worker of job queues needs Celery's event loop: run it with -P solo")
        worker.engine = Parent(worker.app, worker.hostname)

    def start(self, worker: Any) -> None:
        """Start the child."""
        worker.engine.start()

    def stop(self, worker: Any) -> None:
        """End the child; its work was handed back, unless there was no connection to do it over."""
        worker.engine.hand_back(wait=state.should_terminate is None)
        worker.engine.close()

    def terminate(self, worker: Any) -> None:
        """End the child without waiting for it."""
        worker.engine.hand_back(wait=False)
        worker.engine.close()


class JobsStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Joins the parent to each connection, and hands back over the last one."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def include_if(self, consumer: Any) -> bool:
        """Whether this worker has an engine child."""
        return getattr(consumer.controller, "engine", None) is not None

    def start(self, consumer: Any) -> None:
        """The channel is there and does not consume yet."""
        consumer.controller.engine.attach(consumer)

    def stop(self, consumer: Any) -> None:
        """Celery calls this for a lost connection and for the end; only its own state tells which."""
        if consumer.blueprint.state == bootsteps.RUN:
            consumer.controller.engine.detach()
        else:
            consumer.controller.engine.hand_back(wait=state.should_terminate is None)
