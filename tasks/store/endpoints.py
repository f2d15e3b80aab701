"""Endpoints: who is told of a caller's events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from tasks.errors import LimitExceeded
from tasks.store import secrets
from tasks.store.rows import clean
from tasks.webhooks.endpoint import MOST_ENDPOINTS, ROTATION, Endpoint, EndpointNotFound

_NAMES = tuple(Endpoint.__dataclass_fields__)
_COLUMNS = ", ".join(f"webhook_endpoints.{name}" for name in _NAMES)
_MINE = "id = %(id)s AND caller = %(caller)s AND deleted_at IS NULL"

MOST_DROPPED = 1000
"""Deliveries that are dropped at once; the rest goes in sets, by `deliveries.drop`."""

# The lock has two that create at once count one after the other.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('webhook_endpoints:' || %(caller)s, 0))"
_COUNT = "SELECT count(*) FROM webhook_endpoints WHERE caller = %(caller)s AND deleted_at IS NULL"
_CREATE = f"""
INSERT INTO webhook_endpoints (id, caller, url, description, events, inline, secret, created_at)
VALUES (%(id)s, %(caller)s, %(url)s, %(description)s, %(events)s, %(inline)s, %(secret)s, %(now)s)
RETURNING {_COLUMNS}
"""
_GET = f"SELECT {_COLUMNS} FROM webhook_endpoints WHERE {_MINE}"
_UPDATE = f"""
UPDATE webhook_endpoints SET url = coalesce(%(url)s, url), description = coalesce(%(description)s, description),
  events = coalesce(%(events)s::text[], events), inline = coalesce(%(inline)s::bool, inline)
WHERE {_MINE} RETURNING {_COLUMNS}
"""
# Asked twice, as when a commit went through and its answer was lost, it must not forget what receivers still have.
_ROTATE = f"""
UPDATE webhook_endpoints SET secret = %(secret)s,
  old_secret = CASE WHEN secret = %(secret)s THEN old_secret ELSE secret END,
  old_secret_until = CASE WHEN secret = %(secret)s THEN old_secret_until ELSE %(until)s END
WHERE {_MINE} RETURNING {_COLUMNS}
"""
_DISABLE = f"""
UPDATE webhook_endpoints SET disabled_at = coalesce(disabled_at, %(now)s),
  disabled_why = coalesce(disabled_why, %(why)s)
WHERE {_MINE} RETURNING {_COLUMNS}
"""
_ENABLE = f"""
UPDATE webhook_endpoints SET disabled_at = NULL, disabled_why = NULL, failing_since = NULL
WHERE {_MINE} RETURNING {_COLUMNS}
"""
# Only so many: what waits for an endpoint that was dead for days may be more than a transaction should write.
DROP = f"""
UPDATE deliveries SET state = 'dropped', next_at = NULL, ended_at = %(now)s WHERE state = 'pending' AND id IN (
  SELECT id FROM deliveries WHERE state = 'pending' AND target = 'endpoint ' || %(id)s::uuid
  ORDER BY next_at LIMIT {MOST_DROPPED}
)
"""
_DELETE = f"""
UPDATE webhook_endpoints SET deleted_at = now(), disabled_at = coalesce(disabled_at, now()), secret = '',
  old_secret = NULL, url = '', description = ''
WHERE {_MINE}
"""
_OWN = "webhooks of "


def create(
    conn: Connection,
    *,
    id_: UUID,
    caller: str,
    url: str,
    events: Sequence[str],
    secret: bytes,
    now: datetime,
    description: str = "",
    inline: bool = False,
) -> Endpoint:
    """A new endpoint. Raises LimitExceeded when the caller has as many as it may."""
    conn.exec_driver_sql(_LOCK, {"caller": clean(caller)}).close()
    if conn.exec_driver_sql(_COUNT, {"caller": clean(caller)}).scalar_one() >= MOST_ENDPOINTS:
        raise LimitExceeded(f"A caller has at most {MOST_ENDPOINTS} endpoints; delete one first.")
    given = {
        "id": id_,
        "caller": clean(caller),
        "url": url,
        "description": clean(description),
        "events": list(events),
        "inline": inline,
        "secret": secret,
        "now": now,
    }
    return _of(conn.exec_driver_sql(_CREATE, given).one())


def get(conn: Connection, id_: UUID | None, caller: str) -> Endpoint:
    """An endpoint of a caller. Raises EndpointNotFound; None is the id of none."""
    return _one(conn, _GET, id_, caller)


def page(conn: Connection, caller: str, *, after: UUID | None, limit: int) -> list[Endpoint]:
    """At most `limit` endpoints of a caller, newest first, from beyond the endpoint `after`."""
    beyond = "AND id < %(after)s" if after is not None else ""
    rows = conn.exec_driver_sql(
        f"SELECT {_COLUMNS} FROM webhook_endpoints WHERE caller = %(caller)s AND deleted_at IS NULL {beyond} "
        "ORDER BY id DESC LIMIT %(limit)s",
        {"caller": clean(caller), "after": after, "limit": limit},
    )
    return [_of(row) for row in rows]


def update(
    conn: Connection,
    id_: UUID | None,
    caller: str,
    *,
    url: str | None = None,
    events: Sequence[str] | None = None,
    description: str | None = None,
    inline: bool | None = None,
) -> Endpoint:
    """Change what is given. Raises EndpointNotFound."""
    given = {
        "url": url,
        "events": None if events is None else list(events),
        "description": None if description is None else clean(description),
        "inline": inline,
    }
    return _one(conn, _UPDATE, id_, caller, **given)


def rotate(conn: Connection, id_: UUID | None, caller: str, secret: bytes, now: datetime) -> Endpoint:
    """Sign with a new secret, and for a day with the one before as well. Raises EndpointNotFound."""
    return _one(conn, _ROTATE, id_, caller, secret=secret, until=now + ROTATION)


def disable(conn: Connection, id_: UUID | None, caller: str, now: datetime, why: str = "by its owner") -> Endpoint:
    """Send it nothing more; what waits for it is dropped, and may be redelivered. Raises EndpointNotFound.

    Where more waits than is dropped at once, `deliveries.drop` does the rest.
    """
    found = _one(conn, _DISABLE, id_, caller, now=now, why=why)
    conn.exec_driver_sql(DROP, {"id": found.id, "now": now}).close()
    return found


def enable(conn: Connection, id_: UUID | None, caller: str) -> Endpoint:
    """Tell it of what happens from now on. Raises EndpointNotFound."""
    return _one(conn, _ENABLE, id_, caller)


def delete(conn: Connection, id_: UUID | None, caller: str) -> None:
    """Forget it: it and its deliveries are seen no more, and go by `deliveries.remove`. Raises EndpointNotFound."""
    if id_ is None or conn.exec_driver_sql(_DELETE, {"id": id_, "caller": clean(caller)}).rowcount == 0:
        raise EndpointNotFound


def own_secret(conn: Connection, caller: str) -> bytes:
    """The secret of webhooks that jobs of this caller name without one; made when it is first asked for."""
    return secrets.secret(conn, _OWN + clean(caller))


def change_own_secret(conn: Connection, caller: str, secret: bytes) -> None:
    """Have this be it."""
    secrets.replace(conn, _OWN + clean(caller), secret)


def _one(conn: Connection, statement: str, id_: UUID | None, caller: str, **given: Any) -> Endpoint:
    row = None
    if id_ is not None:
        row = conn.exec_driver_sql(statement, {"id": id_, "caller": clean(caller), **given}).one_or_none()
    if row is None:
        raise EndpointNotFound
    return _of(row)


def _of(row: Sequence[Any]) -> Endpoint:
    values = dict(zip(_NAMES, row, strict=True))
    return Endpoint(**values | {"events": tuple(values["events"])})
