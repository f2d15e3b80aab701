"""API keys: their form, what they are kept as, and whether one may be used. Pure.

A key is `roost_`, 43 characters of chance (32 bytes) and 6 that follow from them: what is no key of ours is known for
it without asking the database. Only its hash is kept. That it is random is why a plain SHA-256 will do.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from tasks.errors import InvalidRequest, TaskError

PREFIX = "roost_"
_RANDOM_BYTES = 32
_CHECK_CHARS = 6
_FORM = re.compile(r"roost_[A-Za-z0-9_-]{43}[0-9a-f]{6}")
HINT_CHARS = len(PREFIX) + 6
"""How much of a key is kept in plain, to tell keys apart."""

_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


class Scope(StrEnum):
    """What a key is good for. `admin` has the others in it."""

    READ = "read"
    """look at jobs, results, files, models"""
    WRITE = "write"
    """submit, cancel, upload, manage webhooks and backfills"""
    ADMIN = "admin"
    """what concerns all tenants: metrics, the usage of others"""


class KeyMissing(TaskError):
    """This server asks for a key: send it as `Authorization: Bearer roost_…`. `roost keys create` makes one."""

    code = "key_missing"


class KeyUnknown(TaskError):
    """There is no such key; look whether all of it was copied."""

    code = "key_unknown"


class KeyExpired(TaskError):
    """The key's time is over; ask whoever runs this server for a new one."""

    code = "key_expired"


class KeyRevoked(TaskError):
    """The key was revoked; ask whoever runs this server for a new one."""

    code = "key_revoked"


class TenantDisabled(TaskError):
    """The tenant of this key is disabled; ask whoever runs this server."""

    code = "tenant_disabled"


class ScopeMissing(TaskError):
    """The key may not do this; the message names the scope that it lacks, and how one is made that has it."""

    code = "scope_missing"

    @classmethod
    def of(cls, needed: Scope, tenant: str, had: Iterable[Scope], *, param: str | None = None) -> ScopeMissing:
        """What a key lacks of such a tenant and with such scopes."""
        scopes = [needed] if needed is Scope.ADMIN else sorted({*had, needed})
        options = " ".join(f"--scope {scope.value}" for scope in scopes)
        return cls(
            f"The key has not the scope {needed.value!r}, which this needs. Whoever runs this server makes one that "
            f"has it: `roost keys create --tenant {tenant} {options}`.",
            param=param,
        )


class TenantNotFound(TaskError):
    """No such tenant; `roost keys tenants` lists them."""

    code = "tenant_not_found"


class KeyNotFound(TaskError):
    """No such key; `roost keys list` lists them."""

    code = "key_not_found"


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who may have keys. `limits` are those that differ from the settings (see docs/tenants.md)."""

    name: str
    created_at: datetime
    limits: Mapping[str, Any] = field(default_factory=dict)
    retention_s: int | None = None
    disabled_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as its row tells it, with its tenant. Times are UTC."""

    id: UUID
    tenant: Tenant
    label: str
    hint: str
    scopes: frozenset[Scope]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    used_at: datetime | None = None

    def check(self, now: datetime) -> None:
        """Raises KeyRevoked, KeyExpired or TenantDisabled. When it was made does not matter: clocks differ."""
        if self.revoked_at is not None:
            raise KeyRevoked
        if self.expires_at is not None and self.expires_at <= now:
            raise KeyExpired
        if self.tenant.disabled_at is not None:
            raise TenantDisabled


def new_key() -> str:
    """A key that nobody can guess."""
    chance = urlsafe_b64encode(secrets.token_bytes(_RANDOM_BYTES)).decode().rstrip("=")
    return f"{PREFIX}{chance}{_check(chance)}"


def is_key(text: str) -> bool:
    """Whether it may be a key: it has the form, and its last characters follow from the others."""
    if not _FORM.fullmatch(text):
        return False
    chance = text[len(PREFIX) : -_CHECK_CHARS]
    return _check(chance) == text[-_CHECK_CHARS:]


def hash_of(key: str) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(key.encode()).digest()


def tenant_name(text: str) -> str:
    """The name of a tenant as it may be. Raises InvalidRequest."""
    if not _TENANT.fullmatch(text):
        raise InvalidRequest(
            "A tenant's name is up to 63 small letters, digits, dots, dashes and underscores, and begins with a letter "
            "or a digit.",
            param="tenant",
        )
    return text


def _check(chance: str) -> str:
    return hashlib.sha256(chance.encode()).hexdigest()[:_CHECK_CHARS]
