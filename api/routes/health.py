"""Health and metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from api.errors import envelope, headers_of
from api.media import Media, dumps
from api.metrics import CONTENT_TYPE
from api.readiness import missing, missing_workers
from api.route import KeyedRoute, needs
from api.routes.replies import RETRY_AFTER
from api.schemas import NotReady
from api.services import services
from tasks.api_keys import Scope

router = APIRouter(route_class=KeyedRoute, tags=["health"])

_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"model": NotReady, "description": "Not now; `reasons` says why", "headers": RETRY_AFTER}
}


@router.get("/healthz", summary="Is this process up", response_class=PlainTextResponse)
@needs(None)
async def healthz() -> Response:
    """`ok` as long as this process answers. It touches nothing else, so it is right for a liveness probe of the API."""
    return PlainTextResponse("ok")


@router.get("/livez", summary="Does a device answer", response_class=PlainTextResponse, responses=_NOT_READY)
@needs(None)
async def livez(request: Request) -> Response:
    """`ok` while a worker beats whose device works. A beat probes the device first, so a stuck device stops it."""
    return _verdict(await missing_workers(services(request)))


@router.get("/readyz", summary="Can jobs run now", response_class=PlainTextResponse, responses=_NOT_READY)
@needs(None)
async def readyz(request: Request) -> Response:
    """`ok` when database and broker answer and a worker is there."""
    return _verdict(await missing(services(request)))


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
@needs(Scope.ADMIN)
async def metrics(request: Request) -> Response:
    """Counters of the API, and queues, jobs and workers as they are now, in Prometheus' text format."""
    it = services(request)
    return Response(it.metrics.counters() + await it.scrape.page(), media_type=CONTENT_TYPE)


def _verdict(reasons: dict[str, str]) -> Response:
    if not reasons:
        return PlainTextResponse("ok")
    error = {"code": "not_ready", "message": " ".join(reasons.values()), "retryable": True}
    return Response(
        dumps({**envelope(error), "reasons": reasons}),
        status_code=503,
        headers=headers_of(503),
        media_type=Media.JSON.value,
    )
