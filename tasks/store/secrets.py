"""Secrets of the service: made once, and the same for all its processes for as long as the database lives."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection

BYTES = 32

_MAKE = "INSERT INTO secrets (name, value) VALUES (%(name)s, %(value)s) ON CONFLICT (name) DO NOTHING"
_READ = "SELECT value FROM secrets WHERE name = %(name)s"


_REPLACE = """
INSERT INTO secrets (name, value) VALUES (%(name)s, %(value)s) ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value
"""


def replace(conn: Connection, name: str, value: bytes) -> None:
    """Have this be the secret of this name."""
    conn.exec_driver_sql(_REPLACE, {"name": name, "value": value}).close()


def secret(conn: Connection, name: str) -> bytes:
    """The secret of this name; whoever asks first makes it."""
    found = conn.exec_driver_sql(_READ, {"name": name}).scalar_one_or_none()
    if found is None:
        conn.exec_driver_sql(_MAKE, {"name": name, "value": secrets.token_bytes(BYTES)})
        found = conn.exec_driver_sql(_READ, {"name": name}).scalar_one()
    return bytes(found)
