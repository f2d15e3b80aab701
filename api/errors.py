"""Errors at the door: one table from code to HTTP status, one envelope, one place where both meet.

`{"error": {"code", "message", "param", "retryable", "job_id"?}}`. An error that nobody raised on purpose becomes a
plain `internal`, is logged whole, and tells the caller nothing of what was inside.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from typing import Any, TypeVar

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from catalog.errors import RoostError
from tasks.errors import TaskError, as_data
from tasks.request import explain

log = logging.getLogger(__name__)

INTERNAL = "internal"
RETRY_AFTER_S = {429: 1, 503: 2}
"""Every 429 and 503 says when to come back."""

ASKS_FOR_KEY = {"www-authenticate": 'Bearer realm="roost"'}
"""A 401 says in which form a key is asked for."""

ASKS_BROWSER = {"www-authenticate": 'Basic realm="roost", charset="UTF-8"'}
"""The form that a browser knows how to ask for."""

STATUS: Mapping[str, int] = {
    # the request
    "invalid_request": 422,
    "invalid_json": 422,
    "invalid_msgpack": 422,
    "invalid_option": 422,
    "unsupported_verb": 422,
    "unsupported_field": 422,
    "limit_exceeded": 413,
    "head_too_large": 431,
    "body_timeout": 408,
    "unsupported_media_type": 415,
    "not_acceptable": 406,
    "route_not_found": 404,
    "method_not_allowed": 405,
    "model_not_found": 404,
    "pool_not_found": 404,
    "tenant_not_found": 404,
    "key_not_found": 404,
    "endpoint_not_found": 404,
    "delivery_not_found": 404,
    "backfill_not_found": 404,
    # who asks
    "key_missing": 401,
    "key_unknown": 401,
    "key_expired": 401,
    "key_revoked": 401,
    "tenant_disabled": 403,
    "scope_missing": 403,
    "cross_site": 403,
    "rate_limited": 429,
    "too_many_jobs": 429,
    "quota_exceeded": 429,
    # what it names
    "url_refused": 422,
    "url_unreachable": 422,
    "secret_invalid": 422,
    "endpoint_disabled": 409,
    "backfill_ended": 409,
    "source_refused": 422,
    "source_unreadable": 422,
    "unsupported_document": 422,
    "unreadable_text": 422,
    "blob_missing": 410,
    "result_not_found": 404,
    "task_not_found": 404,
    "job_not_terminal": 409,
    "job_has_no_plan": 409,
    "ambiguous_model": 422,
    "model_not_allowed": 403,
    "model_not_served": 422,
    # the job
    "job_not_found": 404,
    "result_expired": 410,
    "result_not_stored": 410,
    "not_finished": 409,
    "already_finished": 409,
    "not_retryable": 409,
    "idempotency_conflict": 409,
    "file_not_found": 404,
    "file_in_use": 409,
    "batch_not_found": 404,
    "cancelled": 409,
    # its items
    "empty_text": 422,
    "text_too_long": 422,
    "invalid_item": 422,
    "image_too_large": 422,
    "image_unsupported": 422,
    "image_damaged": 422,
    "all_items_failed": 422,
    # its run
    "deadline_passed": 504,
    "time_limit": 504,
    "still_running": 504,
    "model_load_failed": 502,
    "model_too_large": 422,
    "weights_unavailable": 502,
    # the service
    "overloaded": 429,
    "store_unavailable": 503,
    "broker_unavailable": 503,
    "not_ready": 503,
    "flower_unavailable": 503,
}
"""Codes that are not here are failures inside the service: 500."""


class InvalidJson(TaskError):
    """The body is not valid JSON; the message says where."""

    code = "invalid_json"


class InvalidMsgpack(TaskError):
    """The body is not valid msgpack; the message says why."""

    code = "invalid_msgpack"


class UnsupportedMediaType(TaskError):
    """The body must be application/json or application/msgpack, without a Content-Encoding."""

    code = "unsupported_media_type"


class NotAcceptable(TaskError):
    """The result can be had as application/json or application/msgpack; send one of them in Accept."""

    code = "not_acceptable"


def status_of(code: str) -> int:
    """The HTTP status of an error code."""
    return STATUS.get(code, 500)


def envelope(error: Mapping[str, Any], *, job_id: str | None = None) -> dict[str, Any]:
    """The body of an error reply, from an error as it is stored."""
    body = {
        "code": error["code"],
        "message": error["message"],
        "param": error.get("param"),
        "retryable": error.get("retryable", False),
    }
    return {"error": body if job_id is None else {**body, "job_id": job_id}}


def headers_of(status: int, after_s: float | None = None) -> dict[str, str]:
    """The headers that every reply of this status carries. `after_s` is when to come again, if that is known."""
    if status == 401:
        return dict(ASKS_FOR_KEY)
    if after_s is not None:
        return {"retry-after": whole(after_s)}
    return {"retry-after": str(RETRY_AFTER_S[status])} if status in RETRY_AFTER_S else {}


def whole(after_s: float) -> str:
    """A Retry-After: whole seconds, and not too few."""
    return str(max(1, ceil(after_s)))


def error_response(error: RoostError, *, job_id: str | None = None) -> Response:
    """The reply for an error raised on purpose."""
    status = status_of(error.code)
    if status >= 500 and status != 503:
        log.error("%s: %s", error.code, error.message)
    return Response(
        orjson.dumps(envelope(as_data(error), job_id=job_id)),
        status_code=status,
        headers=headers_of(status, error.retry_after_s),
        media_type="application/json",
    )


def _plain(code: str, message: str, status: int, headers: Mapping[str, str] | None = None, **more: str) -> Response:
    body = envelope({"code": code, "message": message})
    body["error"].update(more)
    return Response(
        orjson.dumps(body),
        status_code=status,
        headers={**headers_of(status), **(headers or {})},
        media_type="application/json",
    )


async def _on_roost(request: Request, error: RoostError) -> Response:
    return error_response(error)


async def _on_validation(request: Request, error: RequestValidationError) -> Response:
    found = [{**e, "loc": e["loc"][1:] or e["loc"]} for e in error.errors()]
    return error_response(explain(found))


_OPENAI_TYPE = "invalid_request_error"
"""What a path that is not there has besides: clients of OpenAI's read it, and they may ask for any of its paths."""


async def _on_http(request: Request, error: HTTPException) -> Response:
    """What the framework refuses by itself: an unknown path or method."""
    if error.status_code == 404:
        said = "There is no such path; GET /openapi.json lists them all."
        return _plain("route_not_found", said, 404, type=_OPENAI_TYPE)
    if error.status_code == 405:
        allow = ", ".join(_methods(request))
        return _plain("method_not_allowed", f"This path takes {allow}.", 405, {"Allow": allow}, type=_OPENAI_TYPE)
    return _plain("invalid_request", str(error.detail), error.status_code, error.headers)


def _methods(request: Request) -> list[str]:
    """The methods of all routes of the path; the framework tells those of the first one."""
    routes = (route for route in request.app.routes if isinstance(route, Route))
    fitting = (route for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    return sorted({method for route in fitting for method in route.methods or ()})


async def _on_unknown(request: Request, error: Exception) -> Response:
    log.error("unexpected error on %s %s", request.method, request.scope.get("path"), exc_info=error)
    return _plain(INTERNAL, "Something went wrong in the service; its log has the reason.", 500)


E = TypeVar("E", bound=Exception)
Handler = Callable[[Request, E], Awaitable[Response]]


def handle(app: FastAPI, kind: type[E], handler: Handler[E]) -> None:
    """Let `handler` answer errors of this kind."""
    app.add_exception_handler(kind, handler)  # type: ignore[arg-type] # it is called with errors of `kind` only


def install(app: FastAPI) -> None:
    """Put the handlers that every application needs into this one."""
    handle(app, RoostError, _on_roost)
    handle(app, RequestValidationError, _on_validation)
    handle(app, HTTPException, _on_http)
    handle(app, Exception, _on_unknown)
