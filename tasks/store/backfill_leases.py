"""Who works on a backfill: its lease, and the moves that only the lease's holder may make.

A document is done once: what came of it and the end of its jobs' rows are one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection

from tasks.backfills.backfill import ENDED, OPEN, WORKED_ON, Backfill, Document, Done, Status, Tally
from tasks.files import StoredFile
from tasks.lines import Fault
from tasks.store import files, outbox, usage
from tasks.store.backfills import COLUMNS, backfill_of
from tasks.store.change import CANCELLED
from tasks.store.guards import IS_OPEN
from tasks.store.leases import LeaseLost, claiming, is_one_of, ours, releasing
from tasks.store.rows import clean, columns, json_text, unnest, value
from tasks.store.spent import freeing
from tasks.webhooks import events

OURS = ours("backfills", OPEN)
"""The condition that a backfill has not ended and is under the lease of this name. A paused one may be, for a while."""

_CLAIM = claiming("backfills", WORKED_ON, COLUMNS)
_RELEASE = releasing("backfills", OPEN)

_TEND = f"""
UPDATE backfills SET lease_until = now() + make_interval(secs => %(lease_s)s),
  progress_at = CASE WHEN (completed, failed) IS DISTINCT FROM (%(completed)s, %(failed)s) THEN now()
                     ELSE progress_at END,
  completed = %(completed)s, failed = %(failed)s, skipped = %(skipped)s, rows = %(rows)s
WHERE {OURS} RETURNING status
"""

_HELD = f"SELECT 1 FROM backfills WHERE {OURS} FOR NO KEY UPDATE"

_CLEAR = "DELETE FROM backfill_documents WHERE backfill = %(id)s"

_DOCUMENT_COLUMNS = columns(
    number="int4", name="text", source="text", fingerprint="text", size="int8", labels="text>jsonb"
)

_ADD = f"""
INSERT INTO backfill_documents (backfill, {", ".join(c.name for c in _DOCUMENT_COLUMNS)})
SELECT %(id)s, {", ".join(map(value, _DOCUMENT_COLUMNS))} FROM {unnest(_DOCUMENT_COLUMNS)} ON CONFLICT DO NOTHING
"""

_TWICE = """
SELECT name, min(number), max(number) FROM backfill_documents
WHERE backfill = %(id)s GROUP BY name HAVING count(*) > 1 ORDER BY 2 LIMIT %(limit)s
"""

_EARLIER = f"""
SELECT e.id FROM backfills b JOIN backfills e
  ON e.caller = b.caller AND e.name = b.name AND e.id < b.id AND e.recipe = b.recipe
WHERE b.id = %(id)s AND e.{is_one_of(ENDED)} ORDER BY e.id DESC LIMIT %(limit)s
"""

_SKIP = """
UPDATE backfill_documents d SET state = 'skipped', rows = e.rows, columns = e.columns, output = e.output
FROM backfill_documents e
WHERE d.backfill = %(id)s AND d.number BETWEEN %(first)s AND %(last)s AND d.state = 'waiting'
  AND e.backfill = %(earlier)s AND e.name = d.name
  AND e.fingerprint = d.fingerprint AND e.state IN ('done', 'skipped')
"""

_BEGIN = f"""
UPDATE backfills SET status = CASE WHEN status = 'validating' THEN 'in_progress' ELSE status END,
  in_progress_at = now(), total = (SELECT count(*) FROM backfill_documents WHERE backfill = %(id)s)
WHERE {OURS} RETURNING {COLUMNS}
"""

_DOCUMENT = tuple(Document.__dataclass_fields__)

_WAITING = f"""
SELECT {", ".join(_DOCUMENT)} FROM backfill_documents
WHERE backfill = %(id)s AND state = 'waiting' AND number > %(after)s ORDER BY number LIMIT %(limit)s
"""

_TALLY = """
SELECT count(*) FILTER (WHERE state = 'done'), count(*) FILTER (WHERE state = 'failed'),
  count(*) FILTER (WHERE state = 'skipped'), coalesce(sum(rows), 0)
FROM backfill_documents WHERE backfill = %(id)s
"""

_DONE = f"""
UPDATE backfill_documents SET state = %(state)s, rows = %(rows)s, columns = %(columns)s, output = %(output)s,
  error = %(error)s::jsonb
FROM backfills
WHERE backfill = backfills.id AND {OURS} AND number = %(number)s AND state = 'waiting'
"""

_WRITTEN = """
SELECT 1 FROM backfill_documents
WHERE backfill = %(id)s AND number = %(number)s AND state = %(state)s AND output IS NOT DISTINCT FROM %(output)s
"""

_FREE = freeing("DELETE FROM jobs WHERE id = ANY(%(ids)s::uuid[])")

# The index of tags has none that are empty, and it is used where that is said.
_ITS_JOBS = "caller = %(caller)s AND tags @> ARRAY[%(tag)s] AND tags <> '{}'"

_CANCEL_JOBS = f"""
UPDATE jobs SET {CANCELLED}
WHERE id IN (SELECT id FROM jobs WHERE {_ITS_JOBS} AND {IS_OPEN} ORDER BY id FOR NO KEY UPDATE)
RETURNING id
"""

_FREE_ALL = freeing(f"DELETE FROM jobs WHERE {_ITS_JOBS}")

_FINALIZE = f"""
UPDATE backfills SET status = CASE WHEN status = 'in_progress' THEN 'finalizing' ELSE status END,
  finalizing_at = coalesce(finalizing_at, now())
WHERE {OURS} AND status <> 'paused' RETURNING {COLUMNS}
"""

_OUTPUTS = """
SELECT number, output FROM backfill_documents
WHERE backfill = %(id)s AND number > %(after)s AND output IS NOT NULL ORDER BY number LIMIT %(limit)s
"""

_COLUMNS = "SELECT DISTINCT unnest(columns) FROM backfill_documents WHERE backfill = %(id)s ORDER BY 1"

_END = f"""
UPDATE backfills SET status = %(status)s, ended_at = now(), lease_until = NULL, error = %(error)s::jsonb,
  progress_at = CASE WHEN completed + failed < %(completed)s::int8 + %(failed)s::int8 THEN now() ELSE progress_at END,
  output_file = %(output_file)s, report_file = %(report_file)s, completed = %(completed)s, failed = %(failed)s,
  skipped = %(skipped)s, rows = %(rows)s
WHERE {OURS} RETURNING {COLUMNS}
"""

_ENDED_SO = """
SELECT 1 FROM backfills WHERE id = %(id)s AND feeder = %(feeder)s AND status = %(status)s
  AND output_file IS NOT DISTINCT FROM %(output_file)s AND report_file IS NOT DISTINCT FROM %(report_file)s
"""

_SOURCE = "feeders"
"""Who counts what the jobs that they cancel have used."""


def claim(conn: Connection, feeder: str, lease_s: float, *, urgent: bool = False) -> Backfill | None:
    """Take a backfill that nobody holds, cancelled ones first, then the oldest. `urgent` takes only the former."""
    row = conn.exec_driver_sql(_CLAIM, {"feeder": feeder, "lease_s": lease_s, "urgent": urgent}).one_or_none()
    return None if row is None else backfill_of(row)


def release(conn: Connection, feeder: str) -> None:
    """Let others take what this feeder holds."""
    conn.exec_driver_sql(_RELEASE, {"feeder": feeder}).close()


def tend(conn: Connection, id_: UUID, feeder: str, lease_s: float, tally: Tally) -> Status:
    """Renew the lease and tell the counts; the status as it is now. Raises LeaseLost."""
    given = {"id": id_, "feeder": feeder, "lease_s": lease_s, **_counts(tally)}
    status = conn.exec_driver_sql(_TEND, given).scalar_one_or_none()
    if status is None:
        raise LeaseLost
    return Status(status)


def clear(conn: Connection, id_: UUID, feeder: str) -> None:
    """Forget the documents that were listed before, to list them anew. Raises LeaseLost."""
    _held(conn, id_, feeder)
    conn.exec_driver_sql(_CLEAR, {"id": id_}).close()


def add(conn: Connection, id_: UUID, feeder: str, found: Sequence[Document]) -> None:
    """Keep these documents. Raises LeaseLost."""
    _held(conn, id_, feeder)
    arrays = {
        "number": [one.number for one in found],
        "name": [clean(one.name) for one in found],
        "source": [clean(one.source) for one in found],
        "fingerprint": [clean(one.fingerprint) for one in found],
        "size": [one.size for one in found],
        "labels": [json_text(one.labels) for one in found],
    }
    conn.exec_driver_sql(_ADD, {"id": id_, **arrays}).close()


def twice(conn: Connection, id_: UUID, limit: int) -> list[tuple[str, int, int]]:
    """Names that several documents have, with the first and the last of their numbers."""
    return [(row[0], row[1], row[2]) for row in conn.exec_driver_sql(_TWICE, {"id": id_, "limit": limit})]


def earlier(conn: Connection, id_: UUID, limit: int) -> list[UUID]:
    """Backfills of the same name and steps that have ended, the newest first."""
    return list(conn.exec_driver_sql(_EARLIER, {"id": id_, "limit": limit}).scalars())


def skip(conn: Connection, id_: UUID, feeder: str, other: UUID, first: int, last: int) -> None:
    """Of these documents take over what an earlier backfill made of those that are unchanged. Raises LeaseLost."""
    _held(conn, id_, feeder)
    conn.exec_driver_sql(_SKIP, {"id": id_, "earlier": other, "first": first, "last": last}).close()


def begin(conn: Connection, id_: UUID, feeder: str) -> Backfill:
    """All documents are listed. Raises LeaseLost."""
    return _backfill(conn, _BEGIN, id_, feeder)


def waiting(conn: Connection, id_: UUID, after: int, limit: int) -> list[Document]:
    """Documents with something left to do, in order, from beyond the one of the number `after`."""
    rows = conn.exec_driver_sql(_WAITING, {"id": id_, "after": after, "limit": limit})
    return [Document(*row) for row in rows]


def tally(conn: Connection, id_: UUID) -> Tally:
    """How documents have ended so far."""
    return Tally(*map(int, conn.exec_driver_sql(_TALLY, {"id": id_}).one()))


def finish_document(conn: Connection, id_: UUID, feeder: str, done: Done, jobs: Sequence[UUID]) -> None:
    """A document has ended: keep what came of it, and free its jobs' rows. Raises LeaseLost.

    Repeating a call whose commit was in doubt changes nothing.
    """
    given = {
        "id": id_,
        "feeder": feeder,
        "number": done.number,
        "state": "done" if done.error is None else "failed",
        "rows": done.rows,
        "columns": list(done.columns),
        "output": done.output,
        "error": json_text(done.error),
    }
    if conn.exec_driver_sql(_DONE, given).rowcount == 0:
        if conn.exec_driver_sql(_WRITTEN, given).one_or_none() is None:
            raise LeaseLost
        return
    conn.exec_driver_sql(_FREE, {"ids": sorted(jobs)}).close()


def cancel_jobs(conn: Connection, caller: str, tag: str) -> list[UUID]:
    """Cancel all open jobs of a backfill, which its tag tells; which they were."""
    cancelled = [row[0] for row in conn.exec_driver_sql(_CANCEL_JOBS, {"caller": caller, "tag": tag})]
    usage.count(conn, cancelled, _SOURCE)
    return cancelled


def finalize(conn: Connection, id_: UUID, feeder: str) -> Backfill:
    """Nothing is left to do: the files are written next. Raises LeaseLost, also when it was paused meanwhile."""
    return _backfill(conn, _FINALIZE, id_, feeder)


def outputs(conn: Connection, id_: UUID, after: int, limit: int) -> list[tuple[int, str]]:
    """The blobs of documents' rows by number, from beyond the document of the number `after`."""
    return [(row[0], row[1]) for row in conn.exec_driver_sql(_OUTPUTS, {"id": id_, "after": after, "limit": limit})]


def columns_of(conn: Connection, id_: UUID) -> list[str]:
    """All that the rows of its documents hold."""
    return [str(row[0]) for row in conn.exec_driver_sql(_COLUMNS, {"id": id_})]


def end(
    conn: Connection,
    id_: UUID,
    feeder: str,
    status: Status,
    tally: Tally,
    tag: str,
    *,
    faults: Sequence[Fault] = (),
    output: StoredFile | None = None,
    report: StoredFile | None = None,
) -> None:
    """A backfill has ended, with these files; its jobs are gone, and who asked for it is told. Raises LeaseLost.

    Repeating a call whose commit was in doubt changes nothing.
    """
    given = {
        "id": id_,
        "feeder": feeder,
        "status": status.value,
        "error": json_text([fault.as_data() for fault in faults] or None),
        "output_file": output and output.id,
        "report_file": report and report.id,
        **_counts(tally),
    }
    row = conn.exec_driver_sql(_END, given).one_or_none()
    if row is None:
        if conn.exec_driver_sql(_ENDED_SO, given).one_or_none() is None:
            raise LeaseLost
        return
    for file in (output, report):
        if file is not None:
            files.put(conn, file)
    backfill = backfill_of(row)
    conn.exec_driver_sql(_FREE_ALL, {"caller": backfill.caller, "tag": tag}).close()
    kind = f"backfill.{backfill.status.value}"
    outbox.tell(conn, backfill.caller, kind, id_, events.of_backfill(backfill))


def _counts(tally: Tally) -> dict[str, int]:
    return {name: getattr(tally, name) for name in Tally.__dataclass_fields__}


def _held(conn: Connection, id_: UUID, feeder: str) -> None:
    if conn.exec_driver_sql(_HELD, {"id": id_, "feeder": feeder}).one_or_none() is None:
        raise LeaseLost


def _backfill(conn: Connection, sql: str, id_: UUID, feeder: str) -> Backfill:
    row = conn.exec_driver_sql(sql, {"id": id_, "feeder": feeder}).one_or_none()
    if row is None:
        raise LeaseLost
    return backfill_of(row)
