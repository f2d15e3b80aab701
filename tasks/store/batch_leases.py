"""Who works on a batch: its lease, and the moves that only the lease's holder may make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from tasks.batches import OPEN, PREFIX, TAG, Batch, Part, Status, line_job
from tasks.files import StoredFile, shown_id
from tasks.store import files, outbox, usage
from tasks.store.batches import COLUMNS, batch_of
from tasks.store.change import CANCELLED
from tasks.store.guards import IS_OPEN
from tasks.store.leases import LeaseLost, claiming, ours, releasing
from tasks.store.rows import clean, columns, json_text, unnest
from tasks.store.spent import freeing
from tasks.webhooks import events

OURS = ours("batches", OPEN)
"""The condition that a batch is open and under the lease of this name."""


_CLAIM = claiming("batches", OPEN, COLUMNS)
_RELEASE = releasing("batches", OPEN)

_TEND = f"""
UPDATE batches SET lease_until = now() + make_interval(secs => %(lease_s)s),
  progress_at = CASE WHEN (completed, failed) IS DISTINCT FROM (%(completed)s, %(failed)s) THEN now()
                     ELSE progress_at END,
  completed = %(completed)s, failed = %(failed)s
WHERE {OURS} RETURNING status
"""

_PART_COLUMNS = columns(part="int4", first_line="int4", lines="int4", start="int8", size="int8")

_BEGIN = f"""
UPDATE batches SET status = CASE WHEN status = 'validating' THEN 'in_progress' ELSE status END,
  in_progress_at = now(), total = %(total)s, model = %(model)s
WHERE {OURS} RETURNING {COLUMNS}
"""

_ADD_PARTS = f"""
INSERT INTO batch_parts (batch, {", ".join(c.name for c in _PART_COLUMNS)})
SELECT %(batch)s, t.* FROM {unnest(_PART_COLUMNS)} ON CONFLICT DO NOTHING
"""

_FED = f"UPDATE batches SET fed = greatest(fed, %(fed)s) WHERE {OURS}"

_FINALIZE = f"""
UPDATE batches SET status = CASE WHEN status = 'in_progress' THEN 'finalizing' ELSE status END,
  finalizing_at = coalesce(finalizing_at, now())
WHERE {OURS} RETURNING {COLUMNS}
"""

_END = f"""
UPDATE batches SET status = %(status)s, ended_at = now(), lease_until = NULL, errors = %(errors)s::jsonb,
  output_file = %(output_file)s, error_file = %(error_file)s,
  progress_at = CASE WHEN completed + failed <
                          (SELECT coalesce(sum(completed + failed), 0) FROM batch_parts WHERE batch = %(id)s)
                     THEN now() ELSE progress_at END,
  completed = (SELECT coalesce(sum(completed), 0) FROM batch_parts WHERE batch = %(id)s),
  failed = (SELECT coalesce(sum(failed), 0) FROM batch_parts WHERE batch = %(id)s)
WHERE {OURS} RETURNING {COLUMNS}
"""

_ENDED_SO = """
SELECT 1 FROM batches WHERE id = %(id)s AND feeder = %(feeder)s AND status = %(status)s
  AND output_file IS NOT DISTINCT FROM %(output_file)s AND error_file IS NOT DISTINCT FROM %(error_file)s
"""

# Parts that are not done have jobs: those of a batch that ends before its lines, or of a feeder that lost its lease.
_ITS_JOBS = "caller = %(caller)s AND tags @> ARRAY[%(tag)s] AND id BETWEEN %(first)s AND %(last)s"

_CANCEL_LEFT = f"""
UPDATE jobs SET {CANCELLED}
WHERE id IN (SELECT id FROM jobs WHERE {_ITS_JOBS} AND {IS_OPEN} ORDER BY id FOR NO KEY UPDATE)
RETURNING id
"""

_FREE_LEFT = freeing(f"DELETE FROM jobs WHERE {_ITS_JOBS}")

_SOURCE = "feeders"
"""Who counts what the jobs that they cancel have used."""

_DROP_PARTS = "DELETE FROM batch_parts WHERE batch = %(id)s"


def claim(conn: Connection, feeder: str, lease_s: float, *, urgent: bool = False) -> Batch | None:
    """Take an open batch that nobody holds, cancelled ones first, then the oldest. `urgent` takes only the former."""
    row = conn.exec_driver_sql(_CLAIM, {"feeder": feeder, "lease_s": lease_s, "urgent": urgent}).one_or_none()
    return None if row is None else batch_of(row)


def release(conn: Connection, feeder: str) -> None:
    """Let others take what this feeder holds."""
    conn.exec_driver_sql(_RELEASE, {"feeder": feeder}).close()


def tend(conn: Connection, id_: UUID, feeder: str, lease_s: float, completed: int, failed: int) -> Status:
    """Renew the lease and tell the counts; the status as it is now. Raises LeaseLost."""
    given = {"id": id_, "feeder": feeder, "lease_s": lease_s, "completed": completed, "failed": failed}
    status = conn.exec_driver_sql(_TEND, given).scalar_one_or_none()
    if status is None:
        raise LeaseLost
    return Status(status)


def begin(conn: Connection, id_: UUID, feeder: str, parts: Sequence[Part], model: str | None) -> Batch:
    """The input file is good: keep its parts. Raises LeaseLost."""
    total = sum(part.lines for part in parts)
    given = {"id": id_, "feeder": feeder, "total": total, "model": model and clean(model)}
    row = conn.exec_driver_sql(_BEGIN, given).one_or_none()
    if row is None:
        raise LeaseLost
    arrays = {column.name: [getattr(part, column.name) for part in parts] for column in _PART_COLUMNS}
    conn.exec_driver_sql(_ADD_PARTS, {"batch": id_, **arrays}).close()
    return batch_of(row)


def fed(conn: Connection, id_: UUID, feeder: str, parts: int) -> None:
    """Note, before it happens, that lines of the first so many parts get jobs. Raises LeaseLost."""
    if conn.exec_driver_sql(_FED, {"id": id_, "feeder": feeder, "fed": parts}).rowcount == 0:
        raise LeaseLost


def finalize(conn: Connection, id_: UUID, feeder: str) -> Batch:
    """All lines have ended: the files are written next. Raises LeaseLost."""
    row = conn.exec_driver_sql(_FINALIZE, {"id": id_, "feeder": feeder}).one_or_none()
    if row is None:
        raise LeaseLost
    return batch_of(row)


def end(
    conn: Connection,
    id_: UUID,
    feeder: str,
    status: Status,
    *,
    errors: Sequence[Mapping[str, Any]] | None = None,
    output: StoredFile | None = None,
    failures: StoredFile | None = None,
) -> list[UUID]:
    """A batch has ended, with these files, and who asked for it is told. Raises LeaseLost.

    No job of it is left; those that were open are cancelled, and told here. Repeating a call whose commit was in doubt
    changes nothing.
    """
    given = {
        "id": id_,
        "feeder": feeder,
        "status": status.value,
        "errors": json_text(errors),
        "output_file": output and output.id,
        "error_file": failures and failures.id,
    }
    row = conn.exec_driver_sql(_END, given).one_or_none()
    if row is None:
        if conn.exec_driver_sql(_ENDED_SO, given).one_or_none() is None:
            raise LeaseLost
        return []
    for file in (output, failures):
        if file is not None:
            files.put(conn, file)
    conn.exec_driver_sql(_DROP_PARTS, {"id": id_}).close()
    batch = batch_of(row)
    outbox.tell(conn, batch.caller, f"batch.{batch.status.value}", id_, events.of_batch(batch))
    return _drop_jobs(conn, batch)


def _drop_jobs(conn: Connection, batch: Batch) -> list[UUID]:
    its = {
        "caller": batch.caller,
        "tag": TAG + shown_id(PREFIX, batch.id),
        # Jobs of the caller's own may have such a tag, too.
        "first": line_job(batch.id, 0),
        "last": line_job(batch.id, 2**32 - 1),
    }
    cancelled = list(conn.exec_driver_sql(_CANCEL_LEFT, its).scalars())
    if cancelled:
        usage.count(conn, cancelled, _SOURCE)
    conn.exec_driver_sql(_FREE_LEFT, its).close()
    return cancelled
