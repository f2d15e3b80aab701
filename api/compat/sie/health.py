"""GET /health and /ws/cluster-status: what runs where, once and as it changes."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from api.compat.dialect import route_class
from api.compat.sie import errors
from api.compat.sie.caller import VERSION_HEADERS, is_peer
from api.compat.sie.capacity import SieHealth, cluster_status, health
from api.media import Media, dumps
from api.queries import NoQuery, read_query
from api.readiness import NotReady, missing
from api.route import keyed
from api.services import Services, services
from tasks.api_keys import Scope
from tasks.errors import BrokerUnavailable

router = APIRouter(route_class=route_class(errors.render), tags=["health"])

LOOK_S = 1.0
"""How old what a watcher is told may be, besides the age of the heartbeats themselves."""

TRY_AGAIN_LATER = 1013
"""The code that a socket is closed with while the heartbeats cannot be read."""

NO_LONGER = 1008
"""The code that a socket is closed with when its caller's key was revoked or has expired."""


@router.get("/health", summary="Look at workers and models", response_model=SieHealth, responses=errors.errors(503))
async def look(request: Request) -> Response:
    """200 with workers and models while jobs can run, as the peer's gateway answers; 503 while they cannot.

    The peer's own client (X-SIE-SDK-Version) waits for workers by this route, so it gets its 200 without any, too.
    """
    read_query(request, NoQuery)
    it = services(request)
    reasons = await missing(it)
    if reasons and not (is_peer(request) and reasons.keys() == {"worker"}):
        raise NotReady(" ".join(reasons.values()))
    # `missing` has just looked at the workers.
    body = health(await it.presence.lately(LOOK_S), it.clock())
    return Response(dumps(body), media_type=Media.JSON.value, headers=VERSION_HEADERS)


@router.websocket("/ws/cluster-status")
@keyed
async def watch(socket: WebSocket) -> None:
    """Workers and models now, and again each time that they have changed, until the caller leaves."""
    it: Services = socket.app.state.services
    await socket.accept()
    heard = asyncio.ensure_future(socket.receive())
    try:
        said: dict[str, Any] | None = None
        while True:
            try:
                now = cluster_status(await it.presence.lately(LOOK_S), it.clock())
            except BrokerUnavailable as error:
                await socket.close(TRY_AGAIN_LATER, error.message)
                return
            if not await it.keys.still_in(socket.scope, Scope.READ):
                await socket.close(NO_LONGER, "The key is good no longer.")
                return
            if _steady(now) != said:
                said = _steady(now)
                await socket.send_text(dumps({"timestamp": it.clock(), **now}).decode())
            await asyncio.wait({heard}, timeout=LOOK_S)
            if heard.done():
                if heard.result()["type"] == "websocket.disconnect":
                    return
                heard = asyncio.ensure_future(socket.receive())
    finally:
        heard.cancel()


def _steady(status: dict[str, Any]) -> dict[str, Any]:
    """What is told without what changes by itself as time goes by."""
    return {**status, "cluster": {**status["cluster"], "total_qps": None}}
