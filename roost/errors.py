"""What can go wrong, as one tree: catch `RoostError` for all of it, or what you can do something about.

Every error has the `code` that the server told (docs/api.md lists them), a `message` that says what to do, `param` for
the field at fault, `retryable`, and `status` and `job_id` where there are such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roost.job_info import JobInfo
    from roost.results import Item


class RoostError(Exception):
    """Base of all errors of this package."""

    code = "error"
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retryable: bool | None = None,
        status: int | None = None,
        job_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        self.param = param
        self.retryable = self.retryable if retryable is None else retryable
        self.status = status
        self.job_id = job_id


class ConnectionFailed(RoostError):
    """The server could not be reached, for longer than the client's patience or where sending again is not safe."""

    code = "connection_failed"
    retryable = True


class UnexpectedReply(RoostError):
    """What answered speaks another language: another server, another version, or a proxy's own page."""

    code = "unexpected_reply"


class RequestRefused(RoostError):
    """The server did not take the request; `param` names the field."""


class NotAllowed(RequestRefused):
    """401 or 403: who you are, or what the operator lets a model have, is not enough."""


class NotFound(RequestRefused):
    """404 or 410: no such job, model or path, or no longer."""


class Conflict(RequestRefused):
    """409: the job is not in the state for this, or its idempotency key belongs to another body."""


class TooLarge(RequestRefused):
    """413: more than the server takes in one request."""


class Overloaded(RequestRefused):
    """429, for longer than the client's patience."""


class ServerFailed(RoostError):
    """500 and above: the service, not the request, is at fault."""


class NotSigned(RoostError):
    """A request to a receiver of webhooks is not what the server signed, or not with this secret."""

    code = "not_signed"


class JobFailed(RoostError):
    """The job did not succeed: it failed, was cancelled or passed its deadline. `items` is how far it came."""

    def __init__(self, error: Mapping[str, Any], *, state: str, job_id: str, items: Sequence[Item] = ()) -> None:
        super().__init__(**told(error), job_id=job_id)
        self.state = state
        self.items = list(items)


class ItemFailed(RoostError):
    """One item failed while others may be fine; raised when its value is asked for."""


class NoSuchValue(RoostError, AttributeError):
    """The item has no value of this name: another verb or output was asked for."""

    code = "no_such_value"


class StillRunning(RoostError, TimeoutError):
    """The time to wait is over and the job is not; it goes on, and `job` is what was last known of it."""

    code = "still_running"
    retryable = True

    def __init__(self, job: JobInfo) -> None:
        super().__init__(f"Job {job.id} is {job.status}; wait for it again, or cancel it.", job_id=job.id)
        self.job = job


def told(error: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an error from an error as a body has it."""
    return {
        "message": str(error.get("message") or "The server gave no reason."),
        "code": str(error.get("code") or "error"),
        "param": error.get("param"),
        "retryable": bool(error.get("retryable")),
    }


def refusal(status: int, error: Mapping[str, Any]) -> RoostError:
    """The error of a reply with an error status."""
    kind = _KINDS.get(status) or (ServerFailed if status >= 500 else RequestRefused)
    return kind(**told(error), status=status, job_id=error.get("job_id"))


_KINDS: Mapping[int, type[RoostError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: NotFound,
    413: TooLarge,
    429: Overloaded,
}
