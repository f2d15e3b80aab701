"""Tenants and their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Connection

from tasks.api_keys import ApiKey, KeyNotFound, Scope, Tenant, TenantNotFound
from tasks.store.rows import clean

_TENANT = "tenants.name, tenants.created_at, tenants.limits, tenants.retention_s, tenants.disabled_at"
_KEY = (
    "api_keys.id, api_keys.label, api_keys.hint, api_keys.scopes, api_keys.created_at, api_keys.expires_at, "
    "api_keys.revoked_at, api_keys.used_at"
)
_KEYS = f"SELECT {_TENANT}, {_KEY} FROM api_keys JOIN tenants ON tenants.name = api_keys.tenant"

_FIND = f"{_KEYS} WHERE api_keys.hash = %(hash)s"

_LIST = (
    f"{_KEYS} WHERE (%(tenant)s::text IS NULL OR api_keys.tenant = %(tenant)s) ORDER BY api_keys.tenant, api_keys.id"
)

_TENANTS = f"SELECT {_TENANT} FROM tenants WHERE %(name)s::text IS NULL OR name = %(name)s ORDER BY name"

_MAKE_TENANT = "INSERT INTO tenants (name, created_at) VALUES (%(name)s, %(now)s) ON CONFLICT DO NOTHING"

_MAKE_KEY = """
INSERT INTO api_keys (id, tenant, label, hash, hint, scopes, created_at, expires_at)
VALUES (%(id)s, %(tenant)s, %(label)s, %(hash)s, %(hint)s, %(scopes)s, %(now)s, %(expires)s)
"""

_REVOKE = """
UPDATE api_keys SET revoked_at = coalesce(revoked_at, %(now)s)
WHERE id::text = %(which)s OR (hint = %(which)s AND 1 = (SELECT count(*) FROM api_keys WHERE hint = %(which)s))
RETURNING id
"""

_USED = "UPDATE api_keys SET used_at = %(now)s WHERE id = %(id)s AND (used_at IS NULL OR used_at < %(before)s)"

_LIMIT = """
UPDATE tenants SET limits = %(limits)s::jsonb, retention_s = %(retention)s WHERE name = %(name)s RETURNING name
"""

_DISABLE = """
UPDATE tenants SET disabled_at = CASE WHEN %(disabled)s THEN coalesce(disabled_at, %(now)s) END
WHERE name = %(name)s RETURNING name
"""


def find(conn: Connection, hash_: bytes) -> ApiKey | None:
    """The key that has this hash, whatever may be wrong with it."""
    row = conn.exec_driver_sql(_FIND, {"hash": hash_}).one_or_none()
    return None if row is None else _key_of(row)


def keys(conn: Connection, tenant: str | None = None) -> list[ApiKey]:
    """The keys of one tenant or of all."""
    return [_key_of(row) for row in conn.exec_driver_sql(_LIST, {"tenant": tenant and clean(tenant)})]


def tenants(conn: Connection, name: str | None = None) -> list[Tenant]:
    """All tenants, or the one of this name."""
    return [_tenant_of(row) for row in conn.exec_driver_sql(_TENANTS, {"name": name and clean(name)})]


def tenant(conn: Connection, name: str) -> Tenant:
    """One tenant. Raises TenantNotFound."""
    found = tenants(conn, name)
    if not found:
        raise TenantNotFound(param="tenant")
    return found[0]


def create(conn: Connection, key: ApiKey, hash_: bytes, now: datetime) -> None:
    """Keep a new key, and its tenant if that is new, too."""
    conn.exec_driver_sql(_MAKE_TENANT, {"name": key.tenant.name, "now": now})
    conn.exec_driver_sql(
        _MAKE_KEY,
        {
            "id": key.id,
            "tenant": key.tenant.name,
            "label": clean(key.label),
            "hash": hash_,
            "hint": key.hint,
            "scopes": sorted(scope.value for scope in key.scopes),
            "now": now,
            "expires": key.expires_at,
        },
    )


def revoke(conn: Connection, which: str, now: datetime) -> UUID:
    """Revoke a key by its id, or by its beginning if no other begins alike. Raises KeyNotFound."""
    found: UUID | None = conn.exec_driver_sql(_REVOKE, {"which": clean(which), "now": now}).scalar_one_or_none()
    if found is None:
        raise KeyNotFound
    return found


def used(conn: Connection, id_: UUID, now: datetime, before: datetime) -> None:
    """Note that a key was used, unless that was noted after `before`."""
    conn.exec_driver_sql(_USED, {"id": id_, "now": now, "before": before})


def limit(conn: Connection, name: str, limits: Mapping[str, Any], retention_s: int | None) -> None:
    """Set what differs from the settings for a tenant. Raises TenantNotFound."""
    given = {"name": clean(name), "limits": orjson.dumps(dict(limits)).decode(), "retention": retention_s}
    if conn.exec_driver_sql(_LIMIT, given).one_or_none() is None:
        raise TenantNotFound(param="tenant")


def disable(conn: Connection, name: str, now: datetime, *, disabled: bool) -> None:
    """Have none of a tenant's keys work, or all that are good. Raises TenantNotFound."""
    given = {"name": clean(name), "now": now, "disabled": disabled}
    if conn.exec_driver_sql(_DISABLE, given).one_or_none() is None:
        raise TenantNotFound(param="tenant")


def _tenant_of(row: Sequence[Any]) -> Tenant:
    return Tenant(*row[:5])


def _key_of(row: Sequence[Any]) -> ApiKey:
    id_, label, hint, scopes, *times = row[5:]
    return ApiKey(id_, _tenant_of(row), label, hint, frozenset(map(Scope, scopes)), *times)
