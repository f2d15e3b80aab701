"""Who asks. Routes read it from the request; whoever lets requests in has put it there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from starlette.requests import Request

from tasks.prepare import CALLER


class Scope(StrEnum):
    """What a key is good for. `admin` has the others in it."""

    READ = "read"
    """look at jobs, results, files, models"""
    WRITE = "write"
    """submit, cancel, upload, and manage webhooks and backfills"""
    ADMIN = "admin"
    """what concerns all tenants: residency, Flower, usage and failures of others"""


@dataclass(frozen=True, slots=True)
class Identity:
    """The tenant that a request is of, with what its key allows. Without keys everybody is the tenant `default`."""

    tenant: str
    scopes: frozenset[Scope]
    key: UUID | None = None


ANYONE = Identity(CALLER, frozenset(Scope))
"""Who asks where no key is asked for."""


def identity(request: Request) -> Identity:
    """Who asks."""
    found: Identity = request.scope.get("state", {}).get("identity", ANYONE)
    return found


def tenant(request: Request) -> str:
    """Whose jobs, files and webhooks this request is about."""
    return identity(request).tenant
