"""The endpoints that a batch may name."""

from __future__ import annotations

from fastapi.routing import APIRoute

from api.compat import routers
from api.compat.openai.endpoints import ENDPOINTS


def test_each_endpoint_of_a_batch_is_a_route_of_its_path() -> None:
    routes = {route.path for router in routers for route in router.routes if isinstance(route, APIRoute)}
    assert {"/v1/embeddings", "/v1/completions", "/v1/chat/completions", "/v1/responses"} <= ENDPOINTS.keys() <= routes
    assert all(path == endpoint.path for path, endpoint in ENDPOINTS.items())
