"""Telling the peer's client from other callers, on the paths that both APIs have."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response

from api.compat.dialect import guarded
from api.compat.sie.errors import render
from api.route import Handler

SDK_HEADER = "x-sie-sdk-version"
"""The peer's client sends it with every request; nobody else does."""

VERSION_HEADERS = {"x-sie-server-version": "0.10.1", "x-roost-version": version("roost")}
"""Which of the peer's versions is spoken: its client warns when that is far from its own."""


def is_peer(request: Request) -> bool:
    """Whether the peer's client asks."""
    return SDK_HEADER in request.headers


def peer_handler(endpoint: Handler) -> Handler:
    """A handler for the peer's client alone: its errors are in the peer's envelope."""
    caught = guarded(endpoint, render)

    async def handle(request: Request) -> Response:
        response = await caught(request)
        response.headers.update(VERSION_HEADERS)
        return response

    return handle


def or_peer(peer: Handler) -> Callable[[Handler], Handler]:
    """Let `peer` answer a native route where the peer's client asks. It costs all others one look at the headers."""
    theirs = peer_handler(peer)

    def decorate(native: Handler) -> Handler:
        @wraps(native)
        async def handle(request: Request) -> Response:
            return await (theirs if is_peer(request) else native)(request)

        return handle

    return decorate
