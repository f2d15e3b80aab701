"""What a compatible call can end in besides a reply, and errors that name the fields of the caller's own body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from api.compat.endpoints import Ended
from catalog.errors import RoostError
from tasks.errors import TaskError


class JobFailed(TaskError):
    """The job of this call did not succeed; the code and the message are the job's own."""

    def __init__(
        self, code: str, message: str, *, param: str | None = None, retryable: bool = False, job_id: str | None = None
    ) -> None:
        super().__init__(message, param=param)
        self.code = code
        self.retryable = retryable
        self.job_id = job_id

    @classmethod
    def of(cls, error: Mapping[str, Any], *, job_id: str | None = None) -> Self:
        """The stored error of a job or of an item."""
        return cls(
            error["code"],
            error["message"],
            param=error.get("param"),
            retryable=error.get("retryable", False),
            job_id=job_id,
        )


class StillRunning(TaskError):
    """The work was not done in time and has been given up; send the request again."""

    code = "still_running"
    retryable = True

    def __init__(self, job_id: str | None = None) -> None:
        goes_on = (
            f"The work is not done yet and goes on as job {job_id}: send the same request again to wait for it, "
            f"or GET /v1/jobs/{job_id}/result."
        )
        super().__init__(None if job_id is None else goes_on)
        self.job_id = job_id


class Stopping(TaskError):
    """This process is about to end; send the request again, another one takes it."""

    code = "not_ready"
    retryable = True


def renamed(error: RoostError, names: Mapping[str, str]) -> RoostError:
    """The error with its field named as in the caller's body. `names` go from native fields to the caller's."""
    if error.param is None:
        return error
    for ours in sorted(names, key=len, reverse=True):
        if error.param == ours or error.param.startswith((f"{ours}.", f"{ours}[")):
            theirs = (names[ours] + error.param.removeprefix(ours)).lstrip(".")
            error.message = error.message.replace(repr(error.param), repr(theirs))
            option = error.param.removeprefix("options.")
            if theirs.rpartition(".")[2] != option.rpartition(".")[2]:
                error.message = error.message.replace(repr(option), repr(theirs))
            error.param = theirs
            error.args = (error.message,)
            return error
    return error


def first_fault(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The stored error of the first item that failed, with its place; None if none did."""
    for place, row in enumerate(rows):
        if "error" in row:
            error = row["error"]
            param = error.get("param")
            # An item's own text is the item: bodies of other services have nothing beside it.
            return {**error, "param": f"items[{place}]" if param in (None, "text") else param}
    return None


def check_rows(ended: Ended, names: Mapping[str, str]) -> None:
    """Raise the error of the first item that failed, by the caller's name of it: for replies without room for one."""
    if (fault := first_fault(ended.rows)) is not None:
        raise renamed(JobFailed.of(fault, job_id=str(ended.job.id)), names)
