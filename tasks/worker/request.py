"""A job as Celery's worker sees it: what `inspect` lists and what task events tell. It never shows what users sent."""

from __future__ import annotations

import logging
from typing import Any

from celery.worker.request import Request
from celery.worker.state import requests, reserved_requests, task_ready

log = logging.getLogger(__name__)

SUCCEEDED, FAILED, DROPPED = "succeeded", "failed", "dropped"


class JobRequest(Request):  # type: ignore[misc]
    """A received job. The engine child runs it; this object only keeps Celery's account of it."""

    _args: Any
    _message: Any
    acknowledged: bool

    def take_argument(self) -> str:
        """The task's argument. What is left holds no text of a user, and no memory for it."""
        argument = str(self._args[0])
        self._args, self._body = (), b""
        self._message.body, self._message._raw, self._message._decoded_cache = b"", None, None
        self._request_dict.update(args=(), kwargs={})
        self._Request__payload: Any = ((), {}, {})
        return argument

    def conclude(self, status: str, runtime_s: float, code: str | None) -> None:
        """The child committed the job's end: acknowledge it and tell the monitors."""
        if status == SUCCEEDED:
            self.on_success((0, None, runtime_s))
            return
        task_ready(self)
        self.acknowledge()
        if status == FAILED:
            self.send_event("task-failed", exception=code or "failed", traceback="")
        else:
            self.send_event("task-revoked", terminated=False, signum=None, expired=False)

    def forget(self) -> None:
        """The message went back to its queue: another worker's business."""
        requests.pop(self.id, None)
        reserved_requests.discard(self)

    def received_again(self, message: Any) -> None:
        """Another delivery of a job in hand: after a reconnect the same message, else a copy that is acked with it."""
        if message.delivery_tag == self._message.delivery_tag:
            self._message = message
        else:
            self.__dict__.setdefault("copies", []).append(message)

    def acknowledge(self) -> None:
        """Ack at once: we are on the message loop's thread."""
        if self.acknowledged:
            return
        for message in (self._message, *self.__dict__.pop("copies", ())):
            message.ack_log_error(log, self._connection_errors)
        self.acknowledged = True

    def info(self, safe: bool = False) -> dict[str, Any]:
        """What `inspect active` and `reserved` show: never the arguments."""
        described: dict[str, Any] = super().info(safe=True)
        return described

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """Nothing: at a cold shutdown the child is killed, and the message goes back."""

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """Refuse: a job's state lies in the database, and only the API changes it."""
        log.warning("job %s is not terminated from here: use POST /v1/jobs/%s/cancel", self.id, self.id)
