"""What time alone brings about: deadlines, leases, lost messages, the end of retention. Every set is bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from catalog.terms import Lane
from tasks.errors import DeadlinePassed, WorkerLost, as_data
from tasks.jobs import Event, State
from tasks.messages import Submission
from tasks.store.guards import IS_OPEN, before
from tasks.store.rows import SUBMISSION_COLUMNS, json_text, submission_of


@dataclass(frozen=True, slots=True)
class Moved:
    """A job whose state the sweep changed."""

    id: UUID
    state: State
    version: int


_EXPIRE = f"""
UPDATE jobs SET state = 'expired', error = %(error)s::jsonb, finished_at = %(now)s, version = version + 1,
  expires_at = %(now)s::timestamptz + make_interval(secs => retention_s), lease_until = NULL
WHERE id IN (
  SELECT id FROM jobs WHERE {before(Event.EXPIRE)} AND deadline_at <= %(now)s
  ORDER BY deadline_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) RETURNING id, state, version
"""

_RECLAIM = f"""
UPDATE jobs SET
  state = CASE WHEN attempt >= %(max_attempts)s THEN 'failed' ELSE 'queued' END,
  version = version + 1,
  run_at = CASE WHEN attempt >= %(max_attempts)s THEN run_at ELSE %(now)s END,
  error = CASE WHEN attempt >= %(max_attempts)s THEN %(error)s::jsonb END,
  finished_at = CASE WHEN attempt >= %(max_attempts)s THEN %(now)s::timestamptz END,
  expires_at = CASE WHEN attempt >= %(max_attempts)s
                    THEN %(now)s::timestamptz + make_interval(secs => retention_s) END,
  lease_until = CASE WHEN attempt >= %(max_attempts)s THEN NULL ELSE lease_until END
WHERE id IN (
  SELECT id FROM jobs WHERE state = 'running' AND {IS_OPEN} AND lease_until <= %(now)s
  ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) RETURNING id, state, version
"""

_DUE = f"""
SELECT {SUBMISSION_COLUMNS} FROM jobs
WHERE state = 'queued' AND run_at IS NOT NULL AND run_at <= %(now)s
ORDER BY run_at LIMIT %(limit)s
"""

_UNSEEN = f"""
SELECT {SUBMISSION_COLUMNS} FROM jobs
WHERE state = 'queued' AND {IS_OPEN} AND run_at IS NULL AND queued_at <= %(before)s AND id > %(after)s
ORDER BY id LIMIT %(limit)s
"""

_LOOKED = """
UPDATE jobs SET run_at = t.run_at FROM unnest(%(id)b::uuid[], %(run_at)b::timestamptz[]) AS t(id, run_at)
WHERE jobs.id = t.id AND jobs.state = 'queued'
"""

_DELETE = """
DELETE FROM jobs WHERE id IN (
  SELECT id FROM jobs WHERE expires_at <= %(now)s ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
"""

_COUNTS = f"SELECT state, lane, count(*) FROM jobs WHERE {IS_OPEN} GROUP BY state, lane"


def expire(conn: Connection, now: datetime, limit: int) -> list[Moved]:
    """End open jobs whose deadline has passed, running ones too: their results come too late."""
    parameters = {"now": now, "limit": limit, "error": json_text(as_data(DeadlinePassed()))}
    return _moved(conn, _EXPIRE, parameters)


def reclaim(conn: Connection, now: datetime, max_attempts: int, limit: int) -> list[Moved]:
    """Take running jobs back whose worker has been silent for the whole lease; fail those whose attempts are spent.

    A requeued job keeps its old lease as the mark that an attempt was lost: the next claim counts it.
    """
    error = json_text(as_data(WorkerLost()))
    return _moved(conn, _RECLAIM, {"now": now, "limit": limit, "max_attempts": max_attempts, "error": error})


def _moved(conn: Connection, statement: str, parameters: Mapping[str, object]) -> list[Moved]:
    rows = conn.exec_driver_sql(statement, dict(parameters))
    return [Moved(id_, State(state), version) for id_, state, version in rows]


def due(conn: Connection, now: datetime, limit: int) -> list[Submission]:
    """Queued jobs whose `run_at` has come: requeued ones, and those looked at before. Settle each with `looked`."""
    return [submission_of(row) for row in conn.exec_driver_sql(_DUE, {"now": now, "limit": limit})]


def unseen(conn: Connection, queued_before: datetime, after: UUID, limit: int) -> list[Submission]:
    """Queued jobs that the sweeper has never had to send, by id, from beyond `after`: have they a message?"""
    rows = conn.exec_driver_sql(_UNSEEN, {"before": queued_before, "after": after, "limit": limit})
    return [submission_of(row) for row in rows]


def looked(conn: Connection, next_look: Mapping[UUID, datetime]) -> None:
    """Set when to look next whether these jobs have a message."""
    ids = sorted(next_look)
    conn.exec_driver_sql(_LOOKED, {"id": ids, "run_at": [next_look[id_] for id_ in ids]})


def delete(conn: Connection, now: datetime, limit: int) -> int:
    """Delete jobs past their retention, with inputs and results; how many."""
    return conn.exec_driver_sql(_DELETE, {"now": now, "limit": limit}).rowcount


def counts(conn: Connection) -> dict[tuple[State, Lane], int]:
    """How many jobs are open, by state and lane. Ended ones are counted by the processes that ended them."""
    return {(State(state), Lane(lane)): count for state, lane, count in conn.exec_driver_sql(_COUNTS)}
