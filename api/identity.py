"""Who asks. Routes read it from the request; `api.auth` has put it there, or let nobody in."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from starlette.requests import Request

from tasks.api_keys import Scope
from tasks.prepare import CALLER


@dataclass(frozen=True, slots=True)
class Identity:
    """The tenant that a request is of, with what its key allows. Without keys everybody is the tenant `default`."""

    tenant: str
    scopes: frozenset[Scope]
    key: UUID | None = None


ANYONE = Identity(CALLER, frozenset(Scope))
"""Who asks where no key is asked for."""


def identity(request: Request) -> Identity:
    """Who asks. Raises KeyError on a route that let the request in without asking: then it is of nobody."""
    found: Identity = request.scope["state"]["identity"]
    return found


def tenant(request: Request) -> str:
    """Whose jobs, files and webhooks this request is about."""
    return identity(request).tenant
