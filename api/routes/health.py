"""Health and metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from api.errors import envelope, headers_of
from api.media import Media, dumps
from api.metrics import CONTENT_TYPE
from api.routes.replies import RETRY_AFTER
from api.schemas import NotReady
from api.services import Services, services
from tasks.errors import TaskError
from tasks.store import read

router = APIRouter(tags=["health"])

NO_WORKER = "No worker has sent a heartbeat within 15 seconds; start one, or wait for it."
ALL_LOST = "The device or the engine child of every worker has failed; the workers restart by themselves."
_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"model": NotReady, "description": "Not now; `reasons` says why", "headers": RETRY_AFTER}
}


@router.get("/healthz", summary="Is this process up", response_class=PlainTextResponse)
async def healthz() -> Response:
    """`ok` as long as this process answers. It touches nothing else, so it is right for a liveness probe of the API."""
    return PlainTextResponse("ok")


@router.get("/livez", summary="Does a device answer", response_class=PlainTextResponse, responses=_NOT_READY)
async def livez(request: Request) -> Response:
    """`ok` while a worker beats whose device works. A beat probes the device first, so a stuck device stops it."""
    return _verdict(await _workers(services(request)))


@router.get("/readyz", summary="Can jobs run now", response_class=PlainTextResponse, responses=_NOT_READY)
async def readyz(request: Request) -> Response:
    """`ok` when database and broker answer and a worker is there."""
    it = services(request)
    reasons = await _workers(it)
    try:
        await it.database.run(read.jobs, [])
    except TaskError as error:
        reasons["database"] = error.message
    if not it.link.up:
        reasons.setdefault("broker", "The pub/sub link to Valkey is down.")
    return _verdict(reasons)


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Counters of the API, and queues, jobs and workers as they are now, in Prometheus' text format."""
    it = services(request)
    return Response(it.metrics.counters() + await it.scrape.page(), media_type=CONTENT_TYPE)


async def _workers(it: Services) -> dict[str, str]:
    try:
        workers = await it.presence.live()
    except TaskError as error:
        return {"broker": error.message}
    if not workers:
        return {"worker": NO_WORKER}
    return {"worker": ALL_LOST} if all(worker.lost for worker in workers) else {}


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
