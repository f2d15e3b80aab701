"""Leases on rows that feeders work on: the statements that batches and backfills share.

A lease is named anew each time that a row is taken. What is written under a name that the row does not have any more
is refused, so that of two processes that believe to have it only the newer one writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from sqlalchemy import Connection

from tasks.store.guards import one_of


class LeaseLost(Exception):
    """Another process works on this now."""


_TABLES = ("batches", "backfills")
_HELD = " UNION ".join(
    f"SELECT feeder FROM {table} WHERE lease_until > now() AND starts_with(feeder, %(begins)s)" for table in _TABLES
)
_ABANDON = [f"UPDATE {table} SET lease_until = NULL WHERE feeder = ANY(%(leases)s)" for table in _TABLES]


def held(conn: Connection, begins: str) -> list[str]:
    """The names of the leases that hold, of those that begin so."""
    return [name for (name,) in conn.exec_driver_sql(_HELD, {"begins": begins})]


def abandon(conn: Connection, leases: Sequence[str]) -> None:
    """Let others take what is under these leases, whose holders have died."""
    for statement in _ABANDON:
        conn.exec_driver_sql(statement, {"leases": list(leases)}).close()


def is_one_of(states: Sequence[StrEnum]) -> str:
    """The condition that the row is in one of these states."""
    return f"status IN {one_of(states)}"


def ours(table: str, states: Sequence[StrEnum]) -> str:
    """The condition that a row is in one of these states and under the lease of this name."""
    return f"{table}.id = %(id)s AND feeder = %(feeder)s AND {is_one_of(states)}"


def claiming(table: str, states: Sequence[StrEnum], columns: str) -> str:
    """Take the row that nobody holds: cancelled ones first, then the oldest. `urgent` takes only the former."""
    return f"""
UPDATE {table} SET feeder = %(feeder)s, lease_until = now() + make_interval(secs => %(lease_s)s)
WHERE id = (
  SELECT id FROM {table}
  WHERE {is_one_of(states)} AND (lease_until IS NULL OR lease_until <= now())
    AND (NOT %(urgent)s OR status = 'cancelling')
  ORDER BY status = 'cancelling' DESC, id LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING {columns}
"""


def releasing(table: str, states: Sequence[StrEnum]) -> str:
    """Let others take what this feeder holds."""
    return f"UPDATE {table} SET lease_until = NULL WHERE feeder = %(feeder)s AND {is_one_of(states)}"
