"""What a caller may change about a job: cancel it, or try it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from tasks.errors import JobNotFound
from tasks.jobs import Event, Job
from tasks.store import read
from tasks.store.ended import ended
from tasks.store.guards import before
from tasks.store.rows import JOB_COLUMNS, job_of


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

_CANCEL = f"""
UPDATE jobs SET {CANCELLED}
WHERE id = %(id)s AND caller = %(caller)s AND {before(Event.CANCEL)}
RETURNING {JOB_COLUMNS}
"""

_RETRY = f"""
UPDATE jobs SET state = 'queued', attempt = 1, fence = fence + 1, first_fence = fence + 1, version = version + 1,
  items_failed = 0,
  queued_at = %(now)s, deadline_at = %(now)s::timestamptz + (deadline_at - queued_at), run_at = NULL,
  started_at = NULL, finished_at = NULL, expires_at = NULL, lease_until = NULL, worker = NULL,
  error = NULL, result = NULL, timings = NULL, usage = NULL, device_ms = NULL
WHERE id = %(id)s AND caller = %(caller)s AND {before(Event.RETRY)}
  AND (expires_at IS NULL OR expires_at > %(now)s)
RETURNING {JOB_COLUMNS}
"""


def cancel(conn: Connection, id_: UUID, caller: str) -> Changed:
    """Cancel an open job: after this commits, no result of it can be written. Raises JobNotFound.

    Cancelling twice changes nothing the second time; a job that ended otherwise is left as it is.
    """
    return _apply(conn, _CANCEL, {"id": id_, "caller": caller})


def retry(conn: Connection, id_: UUID, caller: str, now: datetime) -> Changed:
    """Queue a job that failed, was cancelled or expired once more, as its first attempt. Raises JobNotFound.

    Error and result are cleared and the fence rises, so a worker that still runs the old attempt cannot commit it.
    Deliveries are counted from here. A deadline moves on to leave the job as much time as it had at first. Publish it
    after the commit (`read.submissions` gives the message).
    """
    return _apply(conn, _RETRY, {"id": id_, "caller": caller, "now": now})


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
