"""GET /v1/residency: what is on which device, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from api.media import Media, dumps
from api.model_schemas import Residency
from api.residency import worker_object
from api.route import KeyedRoute
from api.routes.replies import errors
from api.services import services
from catalog.live import LiveCatalog

router = APIRouter(route_class=KeyedRoute, tags=["models"])


@router.get(
    "/v1/residency",
    summary="Look at the devices",
    response_model=Residency,
    responses=errors(404, 422, 503),
)
async def residency(
    request: Request,
    model: Annotated[
        str | None, Query(description="Only this model, and only workers that know of it; `id:profile` for one profile")
    ] = None,
    worker: Annotated[str | None, Query(description="Only the worker of this name")] = None,
) -> Response:
    """Every live worker by name: its device's memory, and each model that it was ever asked for.

    As of each worker's last heartbeat, which is at most some seconds old.
    """
    it = services(request)
    wanted = _wanted(it.catalog, model)
    told = [worker_object(one, wanted) for one in await it.presence.live() if worker in {None, one.name}]
    data = [one for one in told if model is None or one["models"] or one["too_large"]]
    return Response(dumps({"object": "list", "data": data}), media_type=Media.JSON.value)


def _wanted(catalog: LiveCatalog, name: str | None) -> Callable[[str], bool]:
    if name is None:
        return lambda _: True
    choice = catalog.look_up(name)
    if ":" in name:
        return lambda key: key == choice.key
    return lambda key: key.partition(":")[0] == choice.spec.id
