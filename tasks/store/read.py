"""Jobs, results and lists, as callers see them. Lists never load inputs or results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from tasks.errors import JobNotFound, NotFinished, ResultExpired, ResultNotStored
from tasks.jobs import Job, State
from tasks.messages import Submission
from tasks.store.pages import Filters, Page, decode_cursor, encode_cursor, first_of
from tasks.store.rows import JOB_COLUMNS, SUBMISSION_COLUMNS, clean, job_of, submission_of

_KEPT = "(jobs.expires_at IS NULL OR jobs.expires_at > now())"

_JOBS = f"""
SELECT {JOB_COLUMNS} FROM jobs
WHERE id = ANY(%(ids)s::uuid[]) AND (%(caller)s::text IS NULL OR caller = %(caller)s) AND {_KEPT}
"""

_JOB = f"SELECT {JOB_COLUMNS} FROM jobs WHERE id = %(id)s AND caller = %(caller)s AND {_KEPT}"

_RESULT = (
    f"SELECT result, result_blob, {_KEPT}, {JOB_COLUMNS} FROM jobs WHERE id = %(id)s "
    "AND (%(caller)s::text IS NULL OR caller = %(caller)s)"
)

_SUBMISSIONS = f"SELECT {SUBMISSION_COLUMNS} FROM jobs WHERE id = ANY(%(ids)s::uuid[]) AND state = 'queued'"


@dataclass(frozen=True, slots=True)
class Result:
    """An ended job and its rows as `tasks.results` packs them, or the key of their blob; neither when it has none."""

    job: Job
    rows: bytes | None
    blob: str | None = None


def job(conn: Connection, id_: UUID, caller: str) -> Job | None:
    """One job of a caller; None when there is none or its retention has ended."""
    row = conn.exec_driver_sql(_JOB, {"id": id_, "caller": caller}).one_or_none()
    return None if row is None else job_of(row)


def jobs(conn: Connection, ids: Sequence[UUID], caller: str | None = None) -> dict[UUID, Job]:
    """Many jobs at once, of one caller or of all; those that are gone are not in the answer."""
    rows = conn.exec_driver_sql(_JOBS, {"ids": list(ids), "caller": caller})
    return {row[0]: job_of(row) for row in rows}


def result(conn: Connection, id_: UUID, caller: str | None) -> Result:
    """An ended job with its result. Raises JobNotFound, ResultExpired, ResultNotStored, or NotFinished."""
    row = conn.exec_driver_sql(_RESULT, {"id": id_, "caller": caller}).one_or_none()
    if row is None:
        raise JobNotFound
    rows, blob, kept, *columns = row
    if not kept:
        raise ResultExpired
    found = job_of(columns)
    if not found.state.final:
        raise NotFinished
    if not found.keep and found.state is State.SUCCEEDED and rows is None and blob is None:
        raise ResultNotStored
    return Result(found, None if rows is None else bytes(rows), blob)


def submissions(conn: Connection, ids: Sequence[UUID]) -> list[Submission]:
    """Queued jobs, to send them again: `checked` is set, and inputs too large for a message are left out."""
    return [submission_of(row) for row in conn.exec_driver_sql(_SUBMISSIONS, {"ids": list(ids)})]


SCAN_ROWS = 20_000
"""Rows that one page looks through at most: a filter that matches little makes pages short, not slow."""

_NEWEST = UUID(int=2**128 - 1)


def page(conn: Connection, caller: str, filters: Filters, cursor: str | None, limit: int) -> Page:
    """A caller's jobs, newest first, `limit` at most. Raises InvalidRequest for a bad cursor.

    A page may hold fewer jobs than asked, even none, and still have a next one: see SCAN_ROWS.
    """
    where, given = _conditions(filters)
    among = " AND ".join(["caller = %(caller)s", "id < %(after)s", *_indexed(filters)])
    after = _NEWEST if cursor is None else decode_cursor(cursor)
    if filters.until is not None:
        after = min(after, first_of(filters.until))
    parameters = {"caller": caller, "after": after, "limit": limit + 1, "scan": SCAN_ROWS, **given}
    # The inner limit also keeps the planner from reading the primary key past all jobs of other callers, in the hope
    # that the first matches come soon. With a tag it chooses: the index of tags, or the way through the caller's jobs.
    window = f"(SELECT * FROM jobs WHERE {among} ORDER BY id DESC LIMIT %(scan)s) AS jobs"
    rows = conn.exec_driver_sql(
        f"SELECT {JOB_COLUMNS} FROM {'jobs' if filters.tag else window} WHERE {' AND '.join([among, *where])} "
        "ORDER BY id DESC LIMIT %(limit)s",
        parameters,
    ).all()
    found = tuple(job_of(row) for row in rows[:limit])
    if len(rows) > limit:
        return Page(found, encode_cursor(found[-1].id))
    if filters.tag is not None:
        return Page(found, None)
    last = conn.exec_driver_sql(
        f"SELECT id FROM jobs WHERE {among} ORDER BY id DESC OFFSET %(scan)s - 1 LIMIT 2", parameters
    ).all()
    return Page(found, encode_cursor(last[0][0]) if len(last) == 2 else None)


def _indexed(filters: Filters) -> list[str]:
    """The filter that an index begins with, after the caller; the predicate of a partial index is repeated."""
    since = [] if filters.since is None else ["id >= %(since)s"]
    if filters.error is not None:
        return [*since, "error ->> 'code' = %(error)s", "state = 'failed'"]
    if filters.status is State.FAILED and filters.model is not None:
        return [*since, "model = %(model)s", "state = 'failed'"]
    if filters.status is not None and filters.status is not State.SUCCEEDED:
        return [*since, "state = %(state)s", "state <> 'succeeded'"]
    return since if filters.model is None else [*since, "model = %(model)s"]


def _conditions(filters: Filters) -> tuple[list[str], dict[str, object]]:
    """All filters; those on partial indexes repeat their predicates word for word."""
    where, parameters = [_KEPT], dict[str, object]()
    for name, value in (
        ("state", filters.status),
        ("verb", filters.verb),
        ("lane", filters.lane),
        ("model", filters.model and clean(filters.model)),
    ):
        if value is not None:
            where.append(f"{name} = %({name})s")
            parameters[name] = str(value)
    if filters.error is not None:
        parameters["error"] = clean(filters.error)
    if filters.since is not None:
        parameters["since"] = first_of(filters.since)
    if filters.tag is not None:
        where.append("tags @> ARRAY[%(tag)s::text] AND tags <> '{}'")
        parameters["tag"] = clean(filters.tag)
    return where, parameters
