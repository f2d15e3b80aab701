"""Errors in the envelope of a dialect: one route class, which renders whatever its routes raise."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from api.body import BodyTimeout, BodyTooLarge, ClientGone, Refusal
from api.errors import ASKS_FOR_KEY, INTERNAL, status_of, whole
from api.route import Handler, PlainRoute
from catalog.errors import RoostError

log = logging.getLogger(__name__)

JOB_HEADER = "x-roost-job-id"
"""Tells the job of a call, on every reply that has one."""

RETRY_AFTER_S = {429: "1", 503: "2", 504: "1"}


@dataclass(frozen=True, slots=True)
class Failure:
    """An error at the border of a dialect. `status` is what the native API answers it with."""

    code: str
    message: str
    param: str | None
    retryable: bool
    status: int
    job_id: str | None = None
    retry_after_s: float | None = None

    @classmethod
    def of(cls, error: RoostError) -> Failure:
        """An error that was raised on purpose."""
        job_id = getattr(error, "job_id", None)
        status = status_of(error.code)
        return cls(error.code, error.message, error.param, error.retryable, status, job_id, error.retry_after_s)


UNEXPECTED = Failure(INTERNAL, "Something went wrong in the service; its log has the reason.", None, False, 500)

Render = Callable[[Request, Failure], Response]


def route_class(render: Render) -> type[PlainRoute]:
    """A class for routers: its routes send what their endpoint gives, and `render`'s reply for what it raises."""

    class DialectRoute(PlainRoute):
        """A route of one dialect."""

        def get_route_handler(self) -> Handler:
            """The endpoint, with its errors caught."""
            return guarded(super().get_route_handler(), render)

    return DialectRoute


def guarded(endpoint: Handler, render: Render) -> Handler:
    """The endpoint with its errors caught, each answered by `render`, and the job of a call told in the header."""

    async def handle(request: Request) -> Response:
        try:
            response = await endpoint(request)
        except ClientGone:
            raise
        except (BodyTooLarge, BodyTimeout) as error:
            response = Refusal(error, _rendered(render, request, Failure.of(error)))
        except RoostError as error:
            response = _rendered(render, request, Failure.of(error))
        except Exception:
            log.exception("unexpected error on %s %s", request.method, request.scope.get("path"))
            response = _rendered(render, request, UNEXPECTED)
        if (job_id := getattr(request.state, "job_id", None)) is not None:
            response.headers[JOB_HEADER] = job_id
        return response

    return handle


def _rendered(render: Render, request: Request, failure: Failure) -> Response:
    if failure.status >= 500 and failure.status not in (503, 504):
        log.error("%s: %s", failure.code, failure.message)
    response = render(request, failure)
    if failure.retry_after_s is not None:
        response.headers["retry-after"] = whole(failure.retry_after_s)
    elif response.status_code in RETRY_AFTER_S:
        response.headers.setdefault("retry-after", RETRY_AFTER_S[response.status_code])
    if response.status_code == 401:
        response.headers.update(ASKS_FOR_KEY)
    return response
