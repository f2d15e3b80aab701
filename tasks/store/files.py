"""The rows of files; their content is in the blob store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from tasks.batches import OPEN
from tasks.files import FileInUse, FileNotFound, StoredFile
from tasks.store.leases import is_one_of

_NAMES = tuple(StoredFile.__dataclass_fields__)
_COLUMNS = ", ".join(_NAMES)
_LIVE = "(expires_at IS NULL OR expires_at > now())"
_IN_USE = f"SELECT 1 FROM batches WHERE input_file = %(id)s AND {is_one_of(OPEN)} LIMIT 1"

# Written twice it stays the same: the transaction may be repeated.
_PUT = f"""
INSERT INTO files ({_COLUMNS}) VALUES ({", ".join(f"%({name})s" for name in _NAMES)}) ON CONFLICT (id) DO NOTHING
"""

_GET = f"SELECT {_COLUMNS} FROM files WHERE id = %(id)s AND caller = %(caller)s AND {_LIVE}"

_LOCK = "SELECT 1 FROM files WHERE id = %(id)s AND caller = %(caller)s FOR UPDATE"

_DELETE = f"DELETE FROM files WHERE id = %(id)s AND caller = %(caller)s AND {_LIVE} RETURNING blob"

_EXPIRED = f"""
DELETE FROM files WHERE id IN (
  SELECT id FROM files WHERE expires_at <= %(now)s AND NOT EXISTS ({_IN_USE.replace("%(id)s", "files.id")})
  ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) RETURNING blob
"""


_KEPT = "SELECT blob FROM files WHERE blob = ANY(%(blobs)s)"


def put(conn: Connection, file: StoredFile) -> None:
    """A row for a file whose content is in the store."""
    conn.exec_driver_sql(_PUT, {name: getattr(file, name) for name in _NAMES}).close()


def get(conn: Connection, id_: UUID | None, caller: str) -> StoredFile:
    """A file of a caller. Raises FileNotFound; None is the id of no file."""
    row = None
    if id_ is not None:
        row = conn.exec_driver_sql(_GET, {"id": id_, "caller": caller}).one_or_none()
    if row is None:
        raise FileNotFound
    return StoredFile(*row)


def page(
    conn: Connection, caller: str, *, after: UUID | None, limit: int, newest_first: bool, purpose: str | None
) -> list[StoredFile]:
    """At most `limit` files of a caller, from beyond the file `after`."""
    where = ["caller = %(caller)s", _LIVE]
    given: dict[str, Any] = {"caller": caller, "limit": limit}
    if after is not None:
        where.append("id < %(after)s" if newest_first else "id > %(after)s")
        given["after"] = after
    if purpose is not None:
        where.append("purpose = %(purpose)s")
        given["purpose"] = purpose
    order = "DESC" if newest_first else "ASC"
    rows = conn.exec_driver_sql(
        f"SELECT {_COLUMNS} FROM files WHERE {' AND '.join(where)} ORDER BY id {order} LIMIT %(limit)s", given
    )
    return [StoredFile(*row) for row in rows]


def delete(conn: Connection, id_: UUID | None, caller: str) -> str:
    """Delete a file's row; the key of its content, to delete next. Raises FileNotFound or FileInUse."""
    # One who makes a batch of it at this moment holds the row, see `batches.create`: only after that can it be told
    # whether a batch reads it.
    conn.exec_driver_sql(_LOCK, {"id": id_, "caller": caller}).close()
    get(conn, id_, caller)
    if conn.exec_driver_sql(_IN_USE, {"id": id_}).one_or_none() is not None:
        raise FileInUse
    blob = conn.exec_driver_sql(_DELETE, {"id": id_, "caller": caller}).scalar_one_or_none()
    if blob is None:
        raise FileNotFound
    return str(blob)


def expire(conn: Connection, now: datetime, limit: int) -> Sequence[str]:
    """Delete the rows of files whose time is over and that no open batch reads; the keys of their contents."""
    return [str(row[0]) for row in conn.exec_driver_sql(_EXPIRED, {"now": now, "limit": limit})]


def kept(conn: Connection, blobs: Sequence[str]) -> set[str]:
    """Which of these keys are the contents of files."""
    return {str(row[0]) for row in conn.exec_driver_sql(_KEPT, {"blobs": list(blobs)})}
