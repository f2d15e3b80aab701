"""Routes that ask who comes, and routes that are documented by one signature and handled by a plain function.

Every route of the API is one of these: whoever may not come in gets no further than this, and its body is never read.
The hot routes read their own body and headers; the framework's way of resolving parameters would take longer than all
the rest of the request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket

from api.errors import ASKS_BROWSER, error_response, status_of
from api.identity import ANYONE
from catalog.errors import RoostError
from tasks.api_keys import Scope

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

Listener = Callable[[WebSocket], Coroutine[Any, Any, None]]

_NEEDS, _KEYED = "__needs__", "__keyed__"
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


def needs(scope: Scope | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What a key must be good for, where that does not follow from the method. None lets everybody in."""

    def decorate(endpoint: Callable[..., Any]) -> Callable[..., Any]:
        setattr(endpoint, _NEEDS, scope)
        return endpoint

    return decorate


def needed(route: APIRoute, method: str) -> Scope | None:
    """What a key must be good for: to look by `read`, all else by `write`, unless the endpoint says otherwise."""
    by_method = Scope.READ if method in _READS else Scope.WRITE
    found: Scope | None = getattr(route.endpoint, _NEEDS, by_method)
    return found


class KeyedRoute(APIRoute):
    """A route of the framework's own kind, behind the door."""

    def get_route_handler(self) -> Handler:
        """The handler, once it is known who asks."""
        return self._behind_the_door(super().get_route_handler())

    def _behind_the_door(self, handler: Handler) -> Handler:
        async def handle(request: Request) -> Response:
            scope = needed(self, request.method)
            keys = request.app.state.services.keys
            request.state.identity = ANYONE if scope is None else await keys.let_in(request.scope, scope)
            return await handler(request)

        return handle


class PlainRoute(KeyedRoute):
    """Calls its endpoint with the request and sends what comes back. Errors go to the application's handlers."""

    def get_route_handler(self) -> Handler:
        """The endpoint itself, once it is known who asks."""
        return self._behind_the_door(self.endpoint)


class BrowserRoute(PlainRoute):
    """For pages: a browser asks its user for the key, as the password of any name."""

    def _behind_the_door(self, handler: Handler) -> Handler:
        behind = super()._behind_the_door(handler)

        async def handle(request: Request) -> Response:
            try:
                return await behind(request)
            except RoostError as error:
                if status_of(error.code) != 401:
                    raise
                answer = error_response(error)
                answer.headers.update(ASKS_BROWSER)
                return answer

        return handle


def keyed(endpoint: Listener) -> Listener:
    """A handler of a socket, behind the door: whoever may not look gets the reply of a request in its place."""

    @wraps(endpoint)
    async def handle(socket: WebSocket) -> None:
        try:
            socket.state.identity = await socket.app.state.services.keys.let_in(socket.scope, Scope.READ)
        except RoostError as error:
            await socket.send_denial_response(error_response(error))
            return
        await endpoint(socket)

    setattr(handle, _KEYED, True)
    return handle


def is_keyed(route: BaseRoute) -> bool:
    """Whether a route asks who comes."""
    return isinstance(route, KeyedRoute) or getattr(getattr(route, "endpoint", None), _KEYED, False)


def documented(signature: Callable[..., Any]) -> Callable[[Handler], Handler]:
    """Show the parameters of `signature` in OpenAPI for a handler that reads them itself. Its body is never called."""

    def decorate(handler: Handler) -> Handler:
        handler.__signature__ = inspect.signature(signature, eval_str=True)  # type: ignore[attr-defined]
        return handler

    return decorate
