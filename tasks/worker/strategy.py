"""The way of a job's message into the worker: no pool, straight to what the engine child holds."""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from celery import Celery, signals
from celery.exceptions import InvalidTaskError
from celery.utils.imports import symbol_by_name
from celery.worker.request import create_request_cls
from celery.worker.state import revoked, task_reserved

from catalog.terms import Lane
from tasks.worker.holding import FRESH, REPEATED, Held
from tasks.worker.parent import Parent
from tasks.worker.request import JobRequest

log = logging.getLogger(__name__)


def jobs(task: Any, app: Celery, consumer: Any) -> Callable[..., None]:
    """Celery's `Task.Strategy` for `roost.run`; made anew at each connection."""
    parent: Parent | None = getattr(consumer.controller, "engine", None)
    base = symbol_by_name(task.Request)
    request_class = create_request_cls(base, task, consumer.pool, consumer.hostname, consumer.event_dispatcher, app=app)
    common = {
        "app": app,
        "hostname": consumer.hostname,
        "eventer": consumer.event_dispatcher,
        "task": task,
        "connection_errors": consumer.connection_errors,
        "decoded": True,
        "utc": True,
    }

    def receive(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
        headers = message.headers
        key = headers.get("id")
        if parent is None:
            log.error("dropped job %s: this worker has no engine child, so it must not consume job queues", key)
            message.ack()
            return
        if (held := parent.holding.get(key)) is not None:
            held.owner.received_again(message)
            return
        try:
            request = request_class(message, body=_body(message), headers=headers, **common)
            held = _held(request, message)
        except (InvalidTaskError, ValueError, TypeError, KeyError, IndexError) as error:
            # Not by Celery's own way, which logs the body.
            log.error("dropped a message that is no job: %s, %s", key, type(error).__name__)  # noqa: TRY400
            message.ack()
            return
        if key in revoked and _first(headers) and request.revoked():
            return
        signals.task_received.send(sender=consumer, request=request)
        request.send_event(
            "task-received",
            name=request.name,
            args="",
            kwargs="",
            root_id=request.root_id,
            parent_id=request.parent_id,
            retries=0,
            eta=None,
            expires=None,
        )
        task_reserved(request)
        parent.receive(held)

    return receive


def _body(message: Any) -> Any:
    """Arguments and the rest, from JSON and nothing else."""
    if message.content_type != "application/json":
        raise ValueError("not JSON")
    return orjson.loads(message.body)


def _held(request: JobRequest, message: Any) -> Held[JobRequest]:
    headers: Mapping[str, Any] = message.headers
    data = b64decode(request.take_argument())
    again = bool(headers.get("redelivered") or (message.delivery_info or {}).get("redelivered"))
    return Held(
        id=str(request.id),
        owner=request,
        data=data,
        lane=Lane(headers["lane"]),
        model=str(headers["model"]),
        cost_ms=float(headers["cost_ms"]),
        lost=REPEATED if again else FRESH,
    )


def _first(headers: Mapping[str, Any]) -> bool:
    """Whether the job has no history: one that was cancelled and tried again is not stopped by the old cancel."""
    return int(headers.get("fence", 1)) <= 1
