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
from api.errors import status_of
from api.media import MSGPACK_NAMES, Media, dumps
from api.routes import replies
from api.schemas import Reply

_UNREADABLE = frozenset(
    {"password_needed", "damaged", "empty", "unsupported_format", "unknown_encoding", "too_large", "wrong_pages"}
)
"""Codes of a document that the caller is to mend. No status of ours is theirs: they are told of items alone."""

_CODES: Mapping[str, tuple[int, str]] = {
    **dict.fromkeys(_UNREADABLE, (400, "INVALID_INPUT")),
    "text_too_long": (400, "INPUT_TOO_LONG"),
    "limit_exceeded": (413, "INPUT_TOO_LONG"),
    "model_load_failed": (502, "MODEL_LOAD_FAILED"),
    "weights_unavailable": (502, "MODEL_LOAD_FAILED"),
    "model_too_large": (502, "MODEL_LOAD_FAILED"),
    # Not 504: its client would send the same work again.
    "time_limit": (500, "INFERENCE_ERROR"),
    "unsupported_field": (400, "unsupported_field"),
    "job_not_terminal": (409, "job_not_terminal"),
    "all_items_failed": (500, "INFERENCE_ERROR"),
    "out_of_memory": (503, "RESOURCE_EXHAUSTED"),
    "overloaded": (503, "QUEUE_FULL"),
    "store_unavailable": (503, "QUEUE_UNAVAILABLE"),
    "broker_unavailable": (503, "QUEUE_UNAVAILABLE"),
    "not_ready": (503, "PROVISIONING"),
    "flower_unavailable": (503, "QUEUE_UNAVAILABLE"),
    "still_running": (504, "GATEWAY_TIMEOUT"),
}
"""Where the peer's status and code are others than ours in capitals."""

CODE_HEADER = "x-sie-error-code"

_RETRY_AFTER_S: Mapping[str, str] = {"QUEUE_FULL": "1", "RESOURCE_EXHAUSTED": "5"}
"""Where the peer's client is told to come back sooner or later than others."""

_LOAD_CLASSES: Mapping[str, str] = {
    "model_load_failed": "UNKNOWN",
    "weights_unavailable": "NOT_FOUND",
    "model_too_large": "OOM",
}
"""The peer's class of a failed load, as far as our code says it; the message says more."""


class SieError(Reply):
    """Why something failed; `message` says what to do."""

    code: str
    message: str
    param: Annotated[str | None, Field(description="The field at fault")] = None
    error_class: Annotated[str | None, Field(description="Of MODEL_LOAD_FAILED: such as `OOM` or `NOT_FOUND`")] = None
    attempts: Annotated[int | None, Field(description="Of MODEL_LOAD_FAILED: workers that tried and failed")] = None
    permanent: Annotated[bool | None, Field(description="Of MODEL_LOAD_FAILED: nothing helps but to mend it")] = None


class SieErrorReply(Reply):
    """The body of every error reply of a route of this dialect."""

    detail: SieError


def told(failure: Failure) -> tuple[int, str]:
    """The status and the code that the peer would answer with."""
    if (known := _CODES.get(failure.code)) is not None:
        return known
    if failure.status == 422:
        return 400, "INVALID_INPUT"
    if failure.status == 500:
        return 500, "INFERENCE_ERROR"
    return failure.status, failure.code.upper()


def code_of(code: str) -> str:
    """The peer's code for one of ours."""
    return told(Failure(code, "", None, False, status_of(code)))[1]


def load_class(code: str) -> str | None:
    """The peer's class of a failed load; None for what is none."""
    return _LOAD_CLASSES.get(code)


def item_error(error: Mapping[str, Any]) -> dict[str, str]:
    """The stored error of one item, in the peer's words."""
    return {"code": code_of(error["code"]), "message": error["message"]}


def detail_of(failure: Failure) -> dict[str, Any]:
    """What its reply, or the last event of its stream, says of it."""
    return {"code": told(failure)[1], "message": failure.message, "param": failure.param}


def render(request: Request, failure: Failure, more: Mapping[str, Any] | None = None) -> Response:
    """The reply, in msgpack where the caller accepts that and no JSON. `more` goes into its `detail`."""
    status, code = told(failure)
    asked = request.headers.get("accept", "").partition(";")[0].strip().lower()
    media = Media.MSGPACK if asked in MSGPACK_NAMES else Media.JSON
    body = {"detail": {**detail_of(failure), **(more or {})}}
    headers = {CODE_HEADER: code}
    if code in _RETRY_AFTER_S:
        headers["retry-after"] = _RETRY_AFTER_S[code]
    return Response(dumps(body, media), status_code=status, media_type=media.value, headers=headers)


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The entries of `responses` for these statuses."""
    return replies.errors(400, *statuses, model=SieErrorReply)
