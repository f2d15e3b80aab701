"""Errors in the peer's envelope: `{"detail": {"code", "message", "param"}}`, in JSON or msgpack as the caller accepts.

Its client decides by code and status whether to wait and try again, so ours are mapped to those that it knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.compat.dialect import Failure
from api.media import MSGPACK_NAMES, Media, dumps
from api.routes import replies
from api.schemas import Reply

_CODES: Mapping[str, tuple[int, str]] = {
    "text_too_long": (400, "INPUT_TOO_LONG"),
    "limit_exceeded": (413, "INPUT_TOO_LONG"),
    "model_load_failed": (502, "MODEL_LOAD_FAILED"),
    "weights_unavailable": (502, "MODEL_LOAD_FAILED"),
    "all_items_failed": (500, "INFERENCE_ERROR"),
    "internal": (500, "INFERENCE_ERROR"),
    "overloaded": (503, "QUEUE_FULL"),
    "store_unavailable": (503, "QUEUE_UNAVAILABLE"),
    "broker_unavailable": (503, "QUEUE_UNAVAILABLE"),
    "not_ready": (503, "PROVISIONING"),
    "still_running": (504, "GATEWAY_TIMEOUT"),
}
"""Where the peer's status and code are others than ours in capitals."""

CODE_HEADER = "x-sie-error-code"


class SieError(Reply):
    """Why something failed; `message` says what to do."""

    code: str
    message: str
    param: Annotated[str | None, Field(description="The field at fault")] = None


class SieErrorReply(Reply):
    """The body of every error reply of a route of this dialect."""

    detail: SieError


def told(failure: Failure) -> tuple[int, str]:
    """The status and the code that the peer would answer with."""
    if (known := _CODES.get(failure.code)) is not None:
        return known
    if failure.status == 422:
        return 400, "INVALID_INPUT"
    return failure.status, failure.code.upper()


def body_of(failure: Failure) -> dict[str, Any]:
    """The body of its reply."""
    return {"detail": {"code": told(failure)[1], "message": failure.message, "param": failure.param}}


def render(request: Request, failure: Failure) -> Response:
    """The reply, in msgpack where the caller accepts that and no JSON."""
    status, code = told(failure)
    asked = request.headers.get("accept", "").partition(";")[0].strip().lower()
    media = Media.MSGPACK if asked in MSGPACK_NAMES else Media.JSON
    return Response(
        dumps(body_of(failure), media), status_code=status, media_type=media.value, headers={CODE_HEADER: code}
    )


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The entries of `responses` for these statuses."""
    return replies.errors(400, *statuses, model=SieErrorReply)
