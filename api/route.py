"""A route that is documented by one signature and handled by a plain function of the request.

The hot routes read their own body and headers; the framework's way of resolving parameters would take longer than all
the rest of the request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PlainRoute(APIRoute):
    """Calls its endpoint with the request and sends what comes back. Errors go to the application's handlers."""

    def get_route_handler(self) -> Handler:
        """The endpoint itself."""
        handler: Handler = self.endpoint
        return handler


def documented(signature: Callable[..., Any]) -> Callable[[Handler], Handler]:
    """Show the parameters of `signature` in OpenAPI for a handler that reads them itself. Its body is never called."""

    def decorate(handler: Handler) -> Handler:
        handler.__signature__ = inspect.signature(signature, eval_str=True)  # type: ignore[attr-defined]
        return handler

    return decorate
