"""What jobs leave and must not: the inputs and results of those with `store` false, and blobs that no row names.

A blob is removed after the commit of what ended its row's claim to it. Until then its key is in `spent_blobs`, written
in that same transaction, so that a process which dies in between leaves nothing behind for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from tasks.contents import job_of

_NOTED = """
INSERT INTO spent_blobs (key) SELECT named.key FROM {rows}
CROSS JOIN LATERAL (VALUES {columns}) AS named(key) WHERE named.key IS NOT NULL ON CONFLICT DO NOTHING"""


def freeing(delete: str, then: str = "count(*)") -> str:
    """A DELETE of jobs that notes the blobs of its rows; what it returns, unless `then`, is how many rows went."""
    noted = _NOTED.format(rows="gone", columns="(inputs_blob), (result_blob)")
    return f"WITH gone AS ({delete} RETURNING inputs_blob, result_blob), noted AS ({noted}) SELECT {then} FROM gone"


# In the order of ids, as all do who lock several jobs.
_FORGET_INPUTS = f"""
WITH ours AS MATERIALIZED (
  SELECT id, inputs_blob FROM jobs
  WHERE id = ANY(%(ids)s::uuid[]) AND NOT keep AND (inputs IS NOT NULL OR inputs_blob IS NOT NULL)
  ORDER BY id FOR NO KEY UPDATE
), emptied AS (UPDATE jobs SET inputs = NULL, inputs_blob = NULL FROM ours WHERE jobs.id = ours.id)
{_NOTED.format(rows="ours", columns="(inputs_blob)")}
"""

_LEFT = "NOT keep AND finished_at IS NOT NULL AND (result IS NOT NULL OR result_blob IS NOT NULL OR options <> '{}')"


def _forget_results(which: str, order: str) -> str:
    return f"""
WITH ours AS MATERIALIZED (
  SELECT id, inputs_blob, result_blob FROM jobs WHERE {which} AND {_LEFT} {order} FOR NO KEY UPDATE SKIP LOCKED
), emptied AS (
  UPDATE jobs SET inputs = NULL, inputs_blob = NULL, result = NULL, result_blob = NULL, options = '{{}}'
  FROM ours WHERE jobs.id = ours.id
), noted AS ({_NOTED.format(rows="ours", columns="(inputs_blob), (result_blob)")})
SELECT inputs_blob, result_blob FROM ours
"""


_OF_JOBS = _forget_results("id = ANY(%(ids)s::uuid[])", "ORDER BY id")
_LATE = _forget_results("finished_at <= %(before)s", "ORDER BY finished_at LIMIT %(limit)s")

_DUE = "SELECT key FROM spent_blobs ORDER BY since LIMIT %(limit)s"
_DONE = "DELETE FROM spent_blobs WHERE key = ANY(%(keys)s::text[])"
_LATER = "UPDATE spent_blobs SET since = now() WHERE key = ANY(%(keys)s::text[])"
_NAMED = "SELECT inputs_blob, result_blob FROM jobs WHERE id = ANY(%(ids)s::uuid[])"


def forget_inputs(conn: Connection, ids: Sequence[UUID]) -> None:
    """Empty the inputs of those of these jobs that are not kept. Call it where they end."""
    if ids:
        conn.exec_driver_sql(_FORGET_INPUTS, {"ids": list(ids)}).close()


def forget_results(conn: Connection, ids: Sequence[UUID]) -> list[str]:
    """Empty what is left of those of these jobs that have ended and are not kept; their blobs, to be removed next."""
    return _keys(conn.exec_driver_sql(_OF_JOBS, {"ids": list(ids)}).all())


def forget_late(conn: Connection, before: datetime, limit: int) -> int:
    """The same for jobs that ended by then and whose result nobody has fetched; how many."""
    return len(conn.exec_driver_sql(_LATE, {"before": before, "limit": limit}).all())


def due(conn: Connection, limit: int) -> list[str]:
    """Blobs to be removed, the oldest first."""
    return list(conn.exec_driver_sql(_DUE, {"limit": limit}).scalars())


def done(conn: Connection, keys: Sequence[str]) -> None:
    """These are gone from the store."""
    conn.exec_driver_sql(_DONE, {"keys": list(keys)}).close()


def later(conn: Connection, keys: Sequence[str]) -> None:
    """These cannot be removed just now."""
    conn.exec_driver_sql(_LATER, {"keys": list(keys)}).close()


def named(conn: Connection, keys: Sequence[str]) -> set[str]:
    """Which of these keys are named by the rows of their jobs."""
    ids = {id_ for key in keys if (id_ := job_of(key)) is not None}
    return set(keys) & set(_keys(conn.exec_driver_sql(_NAMED, {"ids": sorted(ids)}).all()))


def _keys(rows: Sequence[Sequence[str | None]]) -> list[str]:
    return [key for row in rows for key in row if key is not None]
