"""How the sender joins the life of its Celery worker."""

from __future__ import annotations

from typing import Any

from celery import bootsteps

from tasks.queues import WEBHOOK_QUEUE
from tasks.webhooks.process import SenderThread


class SenderStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Sends as long as the worker runs. Absent from a worker that does not consume the queue of webhooks."""

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        worker.sender = None
        super().__init__(worker, **kwargs)

    def include_if(self, worker: Any) -> bool:
        """Whether the worker consumes the queue."""
        return WEBHOOK_QUEUE in worker.app.amqp.queues.consume_from

    def create(self, worker: Any) -> None:
        """Make the thread, for the task to find."""
        worker.sender = worker.app.sender = SenderThread(worker.app.settings)

    def start(self, worker: Any) -> None:
        """Start it."""
        worker.sender.start()

    def stop(self, worker: Any) -> None:
        """Let what is under way end."""
        worker.sender.close()

    terminate = stop
