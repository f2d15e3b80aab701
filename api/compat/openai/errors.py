"""Errors in OpenAI's envelope: `{"error": {"message", "type", "param", "code", "retryable", "job_id"?}}`.

Codes are ours, but for those by which OpenAI's clients tell errors apart. What a caller has to mend is a 400.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.compat import sse
from api.compat.dialect import Failure
from api.media import Media, dumps
from api.routes import replies
from api.schemas import Reply

_STATUS: Mapping[int, int] = {422: 400}
"""Where OpenAI's status is another one than ours."""

_TYPES: Mapping[int, str] = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
"""The type of an error by its status; that of the others follows from whose fault it is."""

_CODES: Mapping[str, str] = {
    "text_too_long": "context_length_exceeded",
    "overloaded": "rate_limit_exceeded",
    "rate_limited": "rate_limit_exceeded",
    "too_many_jobs": "rate_limit_exceeded",
    "quota_exceeded": "insufficient_quota",
    **dict.fromkeys(("key_missing", "key_unknown", "key_expired", "key_revoked"), "invalid_api_key"),
}
"""Codes that clients look for, where ours is another one."""


class OpenAIError(Reply):
    """Why something failed; `message` says what to do."""

    message: str
    type: Annotated[str, Field(description="Such as `invalid_request_error` or `server_error`")]
    param: Annotated[str | None, Field(description="The field at fault")]
    code: str
    retryable: Annotated[bool, Field(description="Whether the same request may succeed later")]
    job_id: str | None = None


class OpenAIErrorReply(Reply):
    """The body of every error reply of an OpenAI route."""

    error: OpenAIError


def status_of(failure: Failure) -> int:
    """The HTTP status that OpenAI would answer with."""
    return _STATUS.get(failure.status, failure.status)


def body_of(failure: Failure) -> dict[str, Any]:
    """The body of its reply, which is also that of an event in a stream and of a line of a batch."""
    status = status_of(failure)
    error = {
        "message": failure.message,
        "type": _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error"),
        "param": failure.param,
        "code": _CODES.get(failure.code, failure.code),
        "retryable": failure.retryable,
    }
    return {"error": error if failure.job_id is None else {**error, "job_id": failure.job_id}}


def event_of(failure: Failure) -> bytes:
    """The last event of a stream that breaks off."""
    return sse.data(body_of(failure))


def render(request: Request, failure: Failure) -> Response:
    """The reply. Its header keeps the client from trying again what cannot help, such as a failed job's 500."""
    return Response(
        dumps(body_of(failure)),
        status_code=status_of(failure),
        media_type=Media.JSON.value,
        headers={"x-should-retry": "true" if failure.retryable else "false"},
    )


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The entries of `responses` for these statuses, and for those that every route may give."""
    return replies.errors(400, 408, 413, *statuses, model=OpenAIErrorReply)


CALL_ERRORS = errors(403, 404, 409, 410, 415, 429, 502, 503, 504)
"""Those of a route that runs a job."""
