"""Errors in TEI's envelope, `{"error", "error_type"}`, with its statuses; code, field and job are added.

413 is a text or a list that is too long, 424 a model that cannot do it, 429 too much at once. A wrong field is a 422.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.compat.dialect import Failure
from api.errors import INTERNAL
from api.media import Media, dumps
from api.routes import replies
from api.schemas import Reply

ErrorType = Literal["Validation", "Empty", "Backend", "Overloaded", "Unhealthy"]

_CODES: Mapping[str, tuple[int, ErrorType]] = {
    "text_too_long": (413, "Validation"),
    "empty_text": (400, "Empty"),
    "unsupported_verb": (424, "Backend"),
    "model_too_large": (424, "Backend"),
}
_STATUSES: Mapping[int, tuple[int, ErrorType]] = {
    429: (429, "Overloaded"),
    500: (424, "Backend"),
    502: (424, "Backend"),
    503: (503, "Unhealthy"),
    504: (504, "Overloaded"),
}


class TeiErrorReply(Reply):
    """The body of every error reply of TEI's routes."""

    error: Annotated[str, Field(description="What is wrong, and what to do")]
    error_type: ErrorType
    code: str
    param: Annotated[str | None, Field(description="The field at fault")]
    retryable: Annotated[bool, Field(description="Whether the same request may succeed later")]
    job_id: str | None = None


def kind_of(failure: Failure) -> tuple[int, ErrorType]:
    """The status and the type that TEI would answer with."""
    if failure.code == INTERNAL:
        return 500, "Backend"
    return _CODES.get(failure.code) or _STATUSES.get(failure.status) or (failure.status, "Validation")


def render(request: Request, failure: Failure) -> Response:
    """The reply to what failed."""
    status, error_type = kind_of(failure)
    body: dict[str, Any] = {
        "error": failure.message,
        "error_type": error_type,
        "code": failure.code,
        "param": failure.param,
        "retryable": failure.retryable,
    }
    if failure.job_id is not None:
        body["job_id"] = failure.job_id
    return Response(dumps(body), status_code=status, media_type=Media.JSON.value)


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The entries of `responses` for these statuses, and for 500."""
    return replies.errors(*statuses, model=TeiErrorReply)


CALL_ERRORS = errors(400, 403, 404, 408, 409, 413, 415, 422, 424, 429, 503, 504)
"""Those of a route that runs a job."""
