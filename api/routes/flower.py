"""/flower/…: Flower's pages and its API, for keys with the scope `admin`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api import flower, sites
from api.body import check_length, read
from api.identity import ANYONE, identity
from api.route import BrowserRoute, needs
from api.services import services
from tasks.api_keys import Scope
from tasks.service_settings import FLOWER_PREFIX

router = APIRouter(route_class=BrowserRoute, include_in_schema=False)


@router.get(FLOWER_PREFIX)
@needs(Scope.ADMIN)
async def front(request: Request) -> Response:
    """The links of its pages start from here."""
    return RedirectResponse(f"{FLOWER_PREFIX}/")


@router.api_route(f"{FLOWER_PREFIX}/{{path:path}}", methods=["GET", "POST"])
@needs(Scope.ADMIN)
async def page(request: Request) -> Response:
    """What Flower shows, or has done to workers."""
    it = services(request)
    sites.check_site(request.method, request.headers, it.settings.public_url)
    if identity(request) is ANYONE:
        sites.check_host(request.headers)
    path = flower.path_of(request.path_params["path"])
    if path is None:
        raise HTTPException(404)
    check_length(request.headers, flower.MAX_BODY_BYTES)
    body = await read(request.receive, flower.MAX_BODY_BYTES)
    return await it.flower.ask(request.method, path, request.scope["query_string"], request.headers, body)
