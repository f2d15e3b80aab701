"""Errors of Cohere's routes, in one envelope that each of their clients reads.

Cohere's reads `message`, Jina's `detail`, the peer's and our own `error`. Statuses are ours: Cohere's client has a
class for each of them that a caller can mend.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.compat.dialect import Failure
from api.media import Media, dumps
from api.routes import replies
from api.schemas import ErrorBody, Reply


class CohereErrorReply(Reply):
    """The body of every error reply of these routes."""

    id: Annotated[str | None, Field(description="The job, if there is one")] = None
    message: Annotated[str, Field(description="What to do, as Cohere's client shows it")]
    detail: Annotated[str, Field(description="The same, for Jina's")]
    error: Annotated[ErrorBody, Field(description="As the native API has it")]


def body_of(failure: Failure) -> dict[str, Any]:
    """The body of an error reply."""
    error = {name: getattr(failure, name) for name in ("code", "message", "param", "retryable")}
    said = {"message": failure.message, "detail": failure.message}
    if failure.job_id is None:
        return {**said, "error": error}
    return {"id": failure.job_id, **said, "error": {**error, "job_id": failure.job_id}}


def render(request: Request, failure: Failure) -> Response:
    """The reply to what failed."""
    return Response(dumps(body_of(failure)), status_code=failure.status, media_type=Media.JSON.value)


ERRORS = replies.errors(403, 404, 408, 409, 413, 415, 422, 429, 502, 503, 504, model=CohereErrorReply)
"""Those of each route here."""
