"""What a caller may change about a job: cancel it, try it again, or delete it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from tasks.dead import KILLERS
from tasks.errors import JobNotFound, JobNotTerminal
from tasks.jobs import FINAL, Event, Job
from tasks.store import read
from tasks.store.ended import ended
from tasks.store.guards import before, one_of
from tasks.store.rows import JOB_COLUMNS, job_of
from tasks.store.spent import freeing


@dataclass(frozen=True, slots=True)
class Changed:
    """The job after the call, and whether the call changed it. When not, its state says why."""

    job: Job
    changed: bool
    told: bool = False
    """somebody is to be told by webhook"""


_SOURCE = "callers"
"""Who counts what the jobs that are cancelled have used."""

CANCELLED = """state = 'cancelled', error = NULL, finished_at = now(), version = version + 1, lease_until = NULL,
  expires_at = now() + make_interval(secs => retention_s)"""
"""What an UPDATE sets for jobs that are cancelled."""

_KILLERS = "(" + ", ".join(f"'{code}'" for code in KILLERS) + ")"

AGAIN = f"""state = 'queued', fence = fence + 1, first_fence = fence + 1, version = version + 1, items_failed = 0,
  attempt = CASE WHEN jobs.error ->> 'code' IN {_KILLERS} THEN 2 ELSE 1 END,
  queued_at = %(now)s, deadline_at = %(now)s::timestamptz + (deadline_at - queued_at), run_at = NULL,
  started_at = NULL, finished_at = NULL, expires_at = NULL, lease_until = NULL, worker = NULL,
  error = NULL, result = NULL, result_blob = NULL, timings = NULL, usage = NULL, device_ms = NULL"""
"""What an UPDATE sets for jobs that are tried again. One that killed its worker runs alone, as after its first time."""

_CANCEL = f"""
UPDATE jobs SET {CANCELLED}
WHERE id = %(id)s AND caller = %(caller)s AND {before(Event.CANCEL)}
RETURNING {JOB_COLUMNS}
"""

_RETRY = f"""
WITH old AS (
  SELECT id, result_blob FROM jobs
  WHERE id = %(id)s AND caller = %(caller)s AND {before(Event.RETRY)} AND keep
    AND (expires_at IS NULL OR expires_at > %(now)s)
  FOR UPDATE
), noted AS (
  INSERT INTO spent_blobs (key) SELECT result_blob FROM old WHERE result_blob IS NOT NULL ON CONFLICT DO NOTHING
)
UPDATE jobs SET {AGAIN}
FROM old WHERE jobs.id = old.id
RETURNING {JOB_COLUMNS}
"""

_DELETE = freeing(
    f"DELETE FROM jobs WHERE id = %(id)s AND caller = %(caller)s AND jobs.state IN {one_of(FINAL)}",
    "inputs_blob, result_blob",
)


def cancel(conn: Connection, id_: UUID, caller: str) -> Changed:
    """Cancel an open job: after this commits, no result of it can be written. Raises JobNotFound.

    Cancelling twice changes nothing the second time; a job that ended otherwise is left as it is.
    """
    return _apply(conn, _CANCEL, {"id": id_, "caller": caller})


def retry(conn: Connection, id_: UUID, caller: str, now: datetime) -> Changed:
    """Queue a job that failed, was cancelled or expired once more, as its first attempt. Raises JobNotFound.

    Not one whose inputs are not kept. Error and result are cleared and the fence rises, so a worker that still runs the
    old attempt cannot commit it. Deliveries are counted from here. A deadline moves on to leave the job as much time as
    it had at first. Publish it after the commit (`read.submissions` gives the message).
    """
    return _apply(conn, _RETRY, {"id": id_, "caller": caller, "now": now})


def delete(conn: Connection, id_: UUID, caller: str) -> list[str]:
    """Delete an ended job with inputs and result. Raises JobNotFound or JobNotTerminal.

    What it gives are its blobs, to be removed next.
    """
    rows = conn.exec_driver_sql(_DELETE, {"id": id_, "caller": caller}).all()
    if not rows:
        raise JobNotFound if read.job(conn, id_, caller) is None else JobNotTerminal
    return [key for key in rows[0] if key is not None]


def _apply(conn: Connection, statement: str, parameters: Mapping[str, object]) -> Changed:
    row = conn.exec_driver_sql(statement, dict(parameters)).one_or_none()
    if row is not None:
        job = job_of(row)
        told = ended(conn, [job.id] if job.state.final else [], _SOURCE)
        return Changed(job, changed=True, told=bool(told))
    found = read.job(conn, parameters["id"], parameters["caller"])  # type: ignore[arg-type]
    if found is None:
        raise JobNotFound
    return Changed(found, changed=False)
