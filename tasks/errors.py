"""What can go wrong with a job between the door and the device."""

from __future__ import annotations

from typing import Any

from catalog.errors import RoostError


class TaskError(RoostError):
    """The job could not be handled; the code says why."""

    code = "task_error"


class InvalidRequest(TaskError):
    """The request is not valid; the message names the field and what is expected."""

    code = "invalid_request"


class LimitExceeded(TaskError):
    """The request is larger than a limit; the message names the limit."""

    code = "limit_exceeded"


class EmptyText(TaskError):
    """The text is empty or blank; send some text."""

    code = "empty_text"


class TextTooLong(TaskError):
    """The text is longer than the model reads; shorten it or send 'truncate': true."""

    code = "text_too_long"


class ModelTooLarge(TaskError):
    """The model can never fit the budget of any worker; raise ROOST_BUDGET or choose a smaller model."""

    code = "model_too_large"


class JobNotFound(TaskError):
    """No such job, or its retention has ended."""

    code = "job_not_found"


class ResultExpired(TaskError):
    """The job's result is gone: its retention has ended. Submit the work again."""

    code = "result_expired"


class ResultNotStored(TaskError):
    """The job was submitted with 'store': false: its result went once it was answered. Submit the work again."""

    code = "result_not_stored"


class BlobMissing(TaskError):
    """The content of this job is gone from the blob store. Submit the work again."""

    code = "blob_missing"


class UrlRefused(TaskError):
    """The URL does not lead to a public host, or is not written as it must be; the message says what is wrong."""

    code = "url_refused"


class UrlUnreachable(TaskError):
    """Nothing useful came from the URL: see that it can be fetched without a key and without a redirect."""

    code = "url_unreachable"

    def __init__(self, message: str | None = None, *, param: str | None = None, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(message, param=param)


class NotFinished(TaskError):
    """The job has not ended yet; wait for it with GET /v1/jobs/{id}?wait=30."""

    code = "not_finished"


class AlreadyFinished(TaskError):
    """The job has already ended, so it can be neither cancelled nor changed."""

    code = "already_finished"


class JobNotTerminal(TaskError):
    """The job has not ended. Wait for it, or cancel it first."""

    code = "job_not_terminal"


class NotRetryable(TaskError):
    """Only a job that failed, was cancelled or expired can be tried again."""

    code = "not_retryable"


class IdempotencyConflict(TaskError):
    """This Idempotency-Key was used with another request; use a new key."""

    code = "idempotency_conflict"


class Overloaded(TaskError):
    """Too many submissions are waiting; try again after the time in Retry-After."""

    code = "overloaded"
    retryable = True


class StoreUnavailable(TaskError):
    """The database cannot be reached; try again after the time in Retry-After."""

    code = "store_unavailable"
    retryable = True


class BrokerUnavailable(TaskError):
    """The broker cannot be reached; the job is kept and will be sent when it is back."""

    code = "broker_unavailable"
    retryable = True


class WorkerLost(TaskError):
    """The job ended its worker each time it ran, so it was given up. Look at its inputs before you retry it."""

    code = "worker_lost"


class TimeLimit(TaskError):
    """The job ran longer than a batch may, so its worker was stopped. Send less work per item."""

    code = "time_limit"


class DeadlinePassed(TaskError):
    """The job was not done before its deadline."""

    code = "deadline_passed"


class AllItemsFailed(TaskError):
    """No item of the job succeeded; each item carries its own error."""

    code = "all_items_failed"


def as_data(error: RoostError) -> dict[str, Any]:
    """The error as it is stored and sent: code, message, retryable, and the field at fault if there is one."""
    data: dict[str, Any] = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.param is not None:
        data["param"] = error.param
    return data
