"""Batches as their callers make, see and cancel them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from tasks.batches import CANCELLABLE, OPEN, Batch, BatchNotFound, Status
from tasks.files import FileNotFound
from tasks.store.leases import is_one_of
from tasks.store.rows import json_text

_NAMES = tuple(Batch.__dataclass_fields__)
COLUMNS = ", ".join(f"batches.{name}" for name in _NAMES)
"""What a Batch is read from, in its order."""


def batch_of(row: Sequence[Any]) -> Batch:
    """The Batch of a row of COLUMNS."""
    values = dict(zip(_NAMES, row, strict=True))
    return Batch(**values | {"status": Status(values["status"])})


@dataclass(frozen=True, slots=True)
class NewBatch:
    """What a caller asks for."""

    id: UUID
    caller: str
    endpoint: str
    completion_window: str
    input_file: UUID
    labels: Mapping[str, str] | None
    output_expires_s: int
    folder: str
    created_at: datetime
    expires_at: datetime


_HELD_FILE = "SELECT 1 FROM files WHERE id = %(id)s AND caller = %(caller)s FOR KEY SHARE"

_CREATE = f"""
INSERT INTO batches (id, caller, status, endpoint, completion_window, input_file, labels, output_expires_s, folder,
                     created_at, expires_at)
VALUES (%(id)s, %(caller)s, 'validating', %(endpoint)s, %(completion_window)s, %(input_file)s, %(labels)s::jsonb,
        %(output_expires_s)s, %(folder)s, %(created_at)s, %(expires_at)s)
ON CONFLICT (id) DO UPDATE SET id = EXCLUDED.id
RETURNING {COLUMNS}
"""

_GET = f"SELECT {COLUMNS} FROM batches WHERE id = %(id)s AND caller = %(caller)s"

_CANCEL = f"""
UPDATE batches SET status = 'cancelling', cancelling_at = now()
WHERE id = %(id)s AND caller = %(caller)s AND {is_one_of(CANCELLABLE)} RETURNING {COLUMNS}
"""


_OPEN_FOLDERS = f"SELECT folder FROM batches WHERE {is_one_of(OPEN)} AND folder = ANY(%(folders)s)"

# What came of a batch is found by its row, so the row stays for as long as one of its files.
_FORGET = """
DELETE FROM batches WHERE id IN (
  SELECT id FROM batches
  WHERE ended_at <= %(before)s
    AND NOT EXISTS (SELECT 1 FROM files WHERE files.id IN (batches.output_file, batches.error_file))
  ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
"""


def create(conn: Connection, new: NewBatch) -> Batch:
    """A batch to be validated. Raises FileNotFound when its input is gone."""
    if conn.exec_driver_sql(_HELD_FILE, {"id": new.input_file, "caller": new.caller}).one_or_none() is None:
        raise FileNotFound
    given = {name: getattr(new, name) for name in NewBatch.__dataclass_fields__}
    return batch_of(conn.exec_driver_sql(_CREATE, given | {"labels": json_text(new.labels)}).one())


def get(conn: Connection, id_: UUID | None, caller: str) -> Batch:
    """A batch of a caller. Raises BatchNotFound; None is the id of no batch."""
    row = None
    if id_ is not None:
        row = conn.exec_driver_sql(_GET, {"id": id_, "caller": caller}).one_or_none()
    if row is None:
        raise BatchNotFound
    return batch_of(row)


def page(conn: Connection, caller: str, *, after: UUID | None, limit: int) -> list[Batch]:
    """At most `limit` batches of a caller, newest first, from beyond the batch `after`."""
    beyond = "AND id < %(after)s" if after is not None else ""
    rows = conn.exec_driver_sql(
        f"SELECT {COLUMNS} FROM batches WHERE caller = %(caller)s {beyond} ORDER BY id DESC LIMIT %(limit)s",
        {"caller": caller, "after": after, "limit": limit},
    )
    return [batch_of(row) for row in rows]


def cancel(conn: Connection, id_: UUID | None, caller: str) -> Batch:
    """Ask for the end of a batch that is validated or worked on; any other is given back as it is."""
    row = None
    if id_ is not None:
        row = conn.exec_driver_sql(_CANCEL, {"id": id_, "caller": caller}).one_or_none()
    return get(conn, id_, caller) if row is None else batch_of(row)


def open_folders(conn: Connection, folders: Sequence[str]) -> set[str]:
    """Which of these folders belong to batches that have not ended."""
    return {str(row[0]) for row in conn.exec_driver_sql(_OPEN_FOLDERS, {"folders": list(folders)})}


def forget(conn: Connection, before: datetime, limit: int) -> int:
    """Delete batches that ended by then and whose files are gone; how many."""
    return conn.exec_driver_sql(_FORGET, {"before": before, "limit": limit}).rowcount
