"""Jobs, results and lists, as callers see them. Lists never load inputs or results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from tasks.errors import JobNotFound, NotFinished, ResultExpired
from tasks.jobs import Job, State
from tasks.messages import Submission
from tasks.store.pages import Filters, Page, decode_cursor, encode_cursor
from tasks.store.rows import JOB_COLUMNS, SUBMISSION_COLUMNS, clean, job_of, submission_of

_KEPT = "(jobs.expires_at IS NULL OR jobs.expires_at > now())"

_JOBS = f"""
SELECT {JOB_COLUMNS} FROM jobs
WHERE id = ANY(%(ids)s::uuid[]) AND (%(caller)s::text IS NULL OR caller = %(caller)s) AND {_KEPT}
"""

_JOB = f"SELECT {JOB_COLUMNS} FROM jobs WHERE id = %(id)s AND caller = %(caller)s AND {_KEPT}"

_RESULT = f"SELECT result, {_KEPT}, {JOB_COLUMNS} FROM jobs WHERE id = %(id)s AND caller = %(caller)s"

_SUBMISSIONS = f"SELECT {SUBMISSION_COLUMNS} FROM jobs WHERE id = ANY(%(ids)s::uuid[]) AND state = 'queued'"


@dataclass(frozen=True, slots=True)
class Result:
    """An ended job and its rows as `tasks.results` packs them; None when it ended without any."""

    job: Job
    rows: bytes | None


def job(conn: Connection, id_: UUID, caller: str) -> Job | None:
    """One job of a caller; None when there is none or its retention has ended."""
    row = conn.exec_driver_sql(_JOB, {"id": id_, "caller": caller}).one_or_none()
    return None if row is None else job_of(row)


def jobs(conn: Connection, ids: Sequence[UUID], caller: str | None = None) -> dict[UUID, Job]:
    """Many jobs at once, of one caller or of all; those that are gone are not in the answer."""
    rows = conn.exec_driver_sql(_JOBS, {"ids": list(ids), "caller": caller})
    return {row[0]: job_of(row) for row in rows}


def result(conn: Connection, id_: UUID, caller: str) -> Result:
    """An ended job with its result. Raises JobNotFound, ResultExpired, or NotFinished."""
    row = conn.exec_driver_sql(_RESULT, {"id": id_, "caller": caller}).one_or_none()
    if row is None:
        raise JobNotFound
    if not row[1]:
        raise ResultExpired
    found = job_of(row[2:])
    if not found.state.final:
        raise NotFinished
    return Result(found, None if row[0] is None else bytes(row[0]))


def submissions(conn: Connection, ids: Sequence[UUID]) -> list[Submission]:
    """Queued jobs, to send them again: `checked` is set, and inputs too large for a message are left out."""
    return [submission_of(row) for row in conn.exec_driver_sql(_SUBMISSIONS, {"ids": list(ids)})]


def page(conn: Connection, caller: str, filters: Filters, cursor: str | None, limit: int) -> Page:
    """A caller's jobs, newest first, `limit` at most. Raises InvalidRequest for a bad cursor."""
    where, parameters = _conditions(caller, filters, cursor)
    rows = conn.exec_driver_sql(
        f"SELECT {JOB_COLUMNS} FROM jobs WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT %(limit)s",
        {**parameters, "limit": limit + 1},
    ).all()
    found = tuple(job_of(row) for row in rows[:limit])
    return Page(found, encode_cursor(found[-1].id) if len(rows) > limit and found else None)


def _conditions(caller: str, filters: Filters, cursor: str | None) -> tuple[list[str], dict[str, object]]:
    """Conditions whose constants match the predicates of the partial indexes, word for word."""
    where, parameters = ["caller = %(caller)s", _KEPT], dict[str, object](caller=caller)
    if cursor is not None:
        where.append("id < %(after)s")
        parameters["after"] = decode_cursor(cursor)
    if filters.status is not None:
        where.append("state = %(state)s")
        if filters.status is not State.SUCCEEDED:
            where.append("state <> 'succeeded'")
        parameters["state"] = filters.status.value
    if filters.tag is not None:
        where.append("tags @> ARRAY[%(tag)s::text] AND tags <> '{}'")
        parameters["tag"] = clean(filters.tag)
    for name, value in (("verb", filters.verb), ("lane", filters.lane)):
        if value is not None:
            where.append(f"{name} = %({name})s")
            parameters[name] = value.value
    if filters.model is not None:
        where.append("model = %(model)s")
        parameters["model"] = clean(filters.model)
    return where, parameters
