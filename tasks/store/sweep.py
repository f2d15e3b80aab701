"""What time alone brings about: deadlines, leases, lost messages, the end of retention. Every set is bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection

from catalog.terms import Lane
from tasks.errors import DeadlinePassed, WorkerLost, as_data
from tasks.jobs import Event, State
from tasks.store.ended import ended
from tasks.store.guards import IS_OPEN, before
from tasks.store.rows import json_text
from tasks.store.spent import freeing


@dataclass(frozen=True, slots=True)
class Moved:
    """A job whose state the sweep changed."""

    id: UUID
    state: State
    version: int
    told: bool = False
    """somebody is to be told by webhook"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued job of which we ask whether it still has a message."""

    id: UUID
    queued_at: datetime


_SOURCE = "sweeper"
"""Who counts what the jobs that it ends have used."""

_EXPIRE = f"""
UPDATE jobs SET state = 'expired', error = %(error)s::jsonb, finished_at = %(now)s, version = version + 1,
  expires_at = %(now)s::timestamptz + make_interval(secs => retention_s), lease_until = NULL
WHERE id IN (
  SELECT id FROM jobs WHERE {before(Event.EXPIRE)} AND deadline_at <= %(now)s
  ORDER BY deadline_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) RETURNING id, state, version
"""

_RECLAIM = """
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
  SELECT id FROM jobs WHERE state = 'running' AND lease_until <= %(now)s
    AND pg_postmaster_start_time() <= now() - %(silence)s::interval
  ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) RETURNING id, state, version
"""

_DUE = """
SELECT id, queued_at FROM jobs
WHERE state = 'queued' AND run_at IS NOT NULL AND run_at <= %(now)s
ORDER BY run_at LIMIT %(limit)s
"""

_UNSEEN = """
SELECT id, queued_at FROM jobs
WHERE state = 'queued' AND run_at IS NULL AND queued_at <= %(before)s AND id > %(after)s
ORDER BY id LIMIT %(limit)s
"""

_LOOKED = """
UPDATE jobs SET run_at = t.run_at FROM unnest(%(id)b::uuid[], %(run_at)b::timestamptz[]) AS t(id, run_at)
WHERE jobs.id = t.id AND jobs.state = 'queued'
"""

_DELETE = freeing("""
DELETE FROM jobs WHERE id IN (
  SELECT id FROM jobs WHERE expires_at <= %(now)s ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
""")

_DELAY = """
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - queued_at))
FROM (SELECT queued_at, started_at FROM jobs ORDER BY id DESC LIMIT 2000) AS newest WHERE started_at IS NOT NULL
"""

_MARK = "SELECT value FROM marks WHERE name = %(name)s"

_REMEMBER = """
INSERT INTO marks (name, value) VALUES (%(name)s, %(value)s) ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value
"""

_COUNTS = f"SELECT state, lane, count(*) FROM jobs WHERE {IS_OPEN} GROUP BY state, lane"


_OPEN = f"SELECT id FROM jobs WHERE id = ANY(%(ids)s::uuid[]) AND {IS_OPEN}"


def expire(conn: Connection, now: datetime, limit: int) -> list[Moved]:
    """End open jobs whose deadline has passed, running ones too: their results come too late."""
    parameters = {"now": now, "limit": limit, "error": json_text(as_data(DeadlinePassed()))}
    return _moved(conn, _EXPIRE, parameters)


def reclaim(
    conn: Connection, now: datetime, limit: int, max_attempts: int, silence: timedelta = timedelta()
) -> list[Moved]:
    """Take running jobs back whose worker has been silent for the whole lease; fail those whose attempts are spent.

    A requeued job keeps its old lease as the mark that an attempt was lost: the next claim counts it. Nothing is taken
    before the server has been up for `silence`: until then it may be that nobody could be heard.
    """
    parameters = {
        "now": now,
        "limit": limit,
        "max_attempts": max_attempts,
        "silence": silence,
        "error": json_text(as_data(WorkerLost())),
    }
    return _moved(conn, _RECLAIM, parameters)


def _moved(conn: Connection, statement: str, parameters: Mapping[str, object]) -> list[Moved]:
    rows = [(id_, State(state), version) for id_, state, version in conn.exec_driver_sql(statement, dict(parameters))]
    told = ended(conn, [id_ for id_, state, _ in rows if state.final], _SOURCE)
    return [Moved(id_, state, version, id_ in told) for id_, state, version in rows]


def due(conn: Connection, now: datetime, limit: int) -> list[Waiting]:
    """Queued jobs whose `run_at` has come: requeued ones, and those looked at before. Settle each with `looked`."""
    return [Waiting(*row) for row in conn.exec_driver_sql(_DUE, {"now": now, "limit": limit})]


def unseen(conn: Connection, queued_before: datetime, after: UUID, limit: int) -> list[Waiting]:
    """Queued jobs that have never been looked at, by id, from beyond `after`."""
    rows = conn.exec_driver_sql(_UNSEEN, {"before": queued_before, "after": after, "limit": limit})
    return [Waiting(*row) for row in rows]


def looked(conn: Connection, next_look: Mapping[UUID, datetime]) -> None:
    """Set when to look next whether these jobs have a message."""
    ids = sorted(next_look)
    conn.exec_driver_sql(_LOOKED, {"id": ids, "run_at": [next_look[id_] for id_ in ids]})


def delete(conn: Connection, now: datetime, limit: int) -> int:
    """Delete jobs past their retention, with inputs and results, and note their blobs; how many."""
    return int(conn.exec_driver_sql(_DELETE, {"now": now, "limit": limit}).scalar_one())


def counts(conn: Connection) -> dict[tuple[State, Lane], int]:
    """How many jobs are open, by state and lane. Ended ones are counted by the processes that ended them."""
    return {(State(state), Lane(lane)): count for state, lane, count in conn.exec_driver_sql(_COUNTS)}


def still_open(conn: Connection, ids: Sequence[UUID]) -> set[UUID]:
    """Which of these jobs have a row and have not ended."""
    return set(conn.exec_driver_sql(_OPEN, {"ids": list(ids)}).scalars())


def queue_delay(conn: Connection) -> float:
    """Seconds that jobs wait before they start: the median of the newest that did; 0 when there are none."""
    return float(conn.exec_driver_sql(_DELAY).scalar_one() or 0.0)


def recall(conn: Connection, name: str) -> str | None:
    """What `remember` kept under this name."""
    value: str | None = conn.exec_driver_sql(_MARK, {"name": name}).scalar_one_or_none()
    return value


def remember(conn: Connection, name: str, value: str) -> None:
    """Keep a value for the next sweep, whichever process runs it."""
    conn.exec_driver_sql(_REMEMBER, {"name": name, "value": value})
