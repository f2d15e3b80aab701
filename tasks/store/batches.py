"""Batches and their parts. Whoever works on a batch holds its lease; what it writes is refused once it does not.

A part is done once: its counts, the blobs of its output and the end of its jobs' rows are one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Connection

from tasks.batches import CANCELLABLE, OPEN, Batch, BatchNotFound, Part, Status, Tally
from tasks.files import FileNotFound, StoredFile
from tasks.jobs import Event, Job, State
from tasks.store import files
from tasks.store.guards import before
from tasks.store.rows import JOB_COLUMNS, columns, job_of, json_text, unnest

_NAMES = tuple(Batch.__dataclass_fields__)
_COLUMNS = ", ".join(f"batches.{name}" for name in _NAMES)
_PART_NAMES = tuple(Part.__dataclass_fields__)


def _in(states: Sequence[Status]) -> str:
    return "status IN (" + ", ".join(repr(state.value) for state in states) + ")"


class LeaseLost(Exception):
    """Another process works on this batch now."""


@dataclass(frozen=True, slots=True)
class NewBatch:
    """What a caller asks for."""

    id: UUID
    caller: str
    endpoint: str
    completion_window: str
    input_file: UUID
    labels: Mapping[str, str] | None
    output_expires_s: int
    folder: str
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class DonePart:
    """What came of a part: the blobs of its lines, where it has any."""

    part: int
    tally: Tally
    output: str | None
    errors: str | None


_HELD_FILE = "SELECT 1 FROM files WHERE id = %(id)s AND caller = %(caller)s FOR KEY SHARE"

_CREATE = f"""
INSERT INTO batches (id, caller, status, endpoint, completion_window, input_file, labels, output_expires_s, folder,
                     created_at, expires_at)
VALUES (%(id)s, %(caller)s, 'validating', %(endpoint)s, %(completion_window)s, %(input_file)s, %(labels)s::jsonb,
        %(output_expires_s)s, %(folder)s, %(created_at)s, %(expires_at)s)
ON CONFLICT (id) DO UPDATE SET id = EXCLUDED.id
RETURNING {_COLUMNS}
"""

_GET = f"SELECT {_COLUMNS} FROM batches WHERE id = %(id)s AND caller = %(caller)s"

_CANCEL = f"""
UPDATE batches SET status = 'cancelling', cancelling_at = now()
WHERE id = %(id)s AND caller = %(caller)s AND {_in(CANCELLABLE)} RETURNING {_COLUMNS}
"""

_CLAIM = f"""
UPDATE batches SET feeder = %(feeder)s, lease_until = now() + make_interval(secs => %(lease_s)s)
WHERE id = (
  SELECT id FROM batches
  WHERE {_in(OPEN)} AND (lease_until IS NULL OR lease_until <= now()) AND (NOT %(urgent)s OR status = 'cancelling')
  ORDER BY status = 'cancelling' DESC, id LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING {_COLUMNS}
"""

_RELEASE = f"UPDATE batches SET lease_until = NULL WHERE feeder = %(feeder)s AND {_in(OPEN)}"

_OURS = f"batches.id = %(id)s AND feeder = %(feeder)s AND {_in(OPEN)}"

_TEND = f"""
UPDATE batches SET lease_until = now() + make_interval(secs => %(lease_s)s),
  progress_at = CASE WHEN (completed, failed) IS DISTINCT FROM (%(completed)s, %(failed)s) THEN now()
                     ELSE progress_at END,
  completed = %(completed)s, failed = %(failed)s
WHERE {_OURS} RETURNING status
"""

_BEGIN = f"""
UPDATE batches SET status = CASE WHEN status = 'validating' THEN 'in_progress' ELSE status END,
  in_progress_at = now(), total = %(total)s, model = %(model)s
WHERE {_OURS} RETURNING {_COLUMNS}
"""

_PART_COLUMNS = columns(part="int4", first_line="int4", lines="int4", start="int8", size="int8")
_ADD_PARTS = f"""
INSERT INTO batch_parts (batch, {", ".join(c.name for c in _PART_COLUMNS)})
SELECT %(batch)s, t.* FROM {unnest(_PART_COLUMNS)} ON CONFLICT DO NOTHING
"""

_OPEN_PARTS = f"""
SELECT {", ".join(_PART_NAMES)} FROM batch_parts
WHERE batch = %(batch)s AND part > %(after)s AND NOT done ORDER BY part LIMIT %(limit)s
"""

_SUM = "SELECT coalesce(sum(completed), 0), coalesce(sum(failed), 0) FROM batch_parts WHERE batch = %(batch)s AND done"

_FED = f"UPDATE batches SET fed = greatest(fed, %(fed)s) WHERE {_OURS}"

_DONE = f"""
UPDATE batch_parts SET done = true, completed = %(completed)s, failed = %(failed)s, output = %(output)s,
  errors = %(errors)s
FROM batches WHERE batch = batches.id AND {_OURS} AND part = %(part)s AND NOT done
"""

_DONE_REST = """
UPDATE batch_parts SET done = true, failed = lines WHERE batch = %(id)s AND part > %(part)s AND NOT done
"""

_WRITTEN = "SELECT output, errors FROM batch_parts WHERE batch = %(id)s AND part = %(part)s AND done"

_TOKENS = """
UPDATE batches SET input_tokens = input_tokens + %(input_tokens)s, output_tokens = output_tokens + %(output_tokens)s
WHERE id = %(id)s
"""

_FREE = "DELETE FROM jobs WHERE id = ANY(%(ids)s::uuid[])"

_FINALIZE = f"""
UPDATE batches SET status = CASE WHEN status = 'in_progress' THEN 'finalizing' ELSE status END,
  finalizing_at = coalesce(finalizing_at, now())
WHERE {_OURS} RETURNING {_COLUMNS}
"""

_BLOBS = """
SELECT output, errors FROM batch_parts
WHERE batch = %(batch)s AND (output IS NOT NULL OR errors IS NOT NULL) ORDER BY part
"""

_END = f"""
UPDATE batches SET status = %(status)s, ended_at = now(), lease_until = NULL, errors = %(errors)s::jsonb,
  output_file = %(output_file)s, error_file = %(error_file)s,
  completed = (SELECT coalesce(sum(completed), 0) FROM batch_parts WHERE batch = %(id)s),
  failed = (SELECT coalesce(sum(failed), 0) FROM batch_parts WHERE batch = %(id)s)
WHERE {_OURS}
"""

_ENDED_SO = """
SELECT 1 FROM batches WHERE id = %(id)s AND feeder = %(feeder)s AND status = %(status)s
  AND output_file IS NOT DISTINCT FROM %(output_file)s AND error_file IS NOT DISTINCT FROM %(error_file)s
"""

_DROP_PARTS = "DELETE FROM batch_parts WHERE batch = %(id)s"

_STATES = "SELECT id, state, coalesce(octet_length(result), 0) FROM jobs WHERE id = ANY(%(ids)s::uuid[])"

_CANCEL_JOBS = f"""
UPDATE jobs SET state = 'cancelled', error = NULL, finished_at = now(), version = version + 1, lease_until = NULL,
  expires_at = now() + make_interval(secs => retention_s)
WHERE id IN (
  SELECT id FROM jobs WHERE id = ANY(%(ids)s::uuid[]) AND {before(Event.CANCEL)} ORDER BY id FOR NO KEY UPDATE
) RETURNING id
"""

_ENDED = f"SELECT result, {JOB_COLUMNS} FROM jobs WHERE id = ANY(%(ids)s::uuid[])"


def create(conn: Connection, new: NewBatch) -> Batch:
    """A batch to be validated. Raises FileNotFound when its input is gone."""
    if conn.exec_driver_sql(_HELD_FILE, {"id": new.input_file, "caller": new.caller}).one_or_none() is None:
        raise FileNotFound
    given = {name: getattr(new, name) for name in NewBatch.__dataclass_fields__}
    return _batch(conn.exec_driver_sql(_CREATE, given | {"labels": json_text(new.labels)}).one())


def get(conn: Connection, id_: UUID | None, caller: str) -> Batch:
    """A batch of a caller. Raises BatchNotFound; None is the id of no batch."""
    row = None
    if id_ is not None:
        row = conn.exec_driver_sql(_GET, {"id": id_, "caller": caller}).one_or_none()
    if row is None:
        raise BatchNotFound
    return _batch(row)


def page(conn: Connection, caller: str, *, after: UUID | None, limit: int) -> list[Batch]:
    """At most `limit` batches of a caller, newest first, from beyond the batch `after`."""
    beyond = "AND id < %(after)s" if after is not None else ""
    rows = conn.exec_driver_sql(
        f"SELECT {_COLUMNS} FROM batches WHERE caller = %(caller)s {beyond} ORDER BY id DESC LIMIT %(limit)s",
        {"caller": caller, "after": after, "limit": limit},
    )
    return [_batch(row) for row in rows]


def cancel(conn: Connection, id_: UUID | None, caller: str) -> Batch:
    """Ask for the end of a batch that is validated or worked on; any other is given back as it is."""
    row = None
    if id_ is not None:
        row = conn.exec_driver_sql(_CANCEL, {"id": id_, "caller": caller}).one_or_none()
    return get(conn, id_, caller) if row is None else _batch(row)


def claim(conn: Connection, feeder: str, lease_s: float, *, urgent: bool = False) -> Batch | None:
    """Take an open batch that nobody holds, cancelled ones first, then the oldest. `urgent` takes only the former."""
    row = conn.exec_driver_sql(_CLAIM, {"feeder": feeder, "lease_s": lease_s, "urgent": urgent}).one_or_none()
    return None if row is None else _batch(row)


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
    row = conn.exec_driver_sql(_BEGIN, {"id": id_, "feeder": feeder, "total": total, "model": model}).one_or_none()
    if row is None:
        raise LeaseLost
    arrays = {name: [getattr(part, name) for part in parts] for name in _PART_NAMES}
    conn.exec_driver_sql(_ADD_PARTS, {"batch": id_, **arrays}).close()
    return _batch(row)


def open_parts(conn: Connection, id_: UUID, after: int, limit: int) -> list[Part]:
    """Parts that are not done, in order, from beyond the part of the number `after`."""
    rows = conn.exec_driver_sql(_OPEN_PARTS, {"batch": id_, "after": after, "limit": limit})
    return [Part(*row) for row in rows]


def tally(conn: Connection, id_: UUID) -> Tally:
    """How many lines have ended in the parts that are done."""
    completed, failed = conn.exec_driver_sql(_SUM, {"batch": id_}).one()
    return Tally(int(completed), int(failed))


def fed(conn: Connection, id_: UUID, feeder: str, parts: int) -> None:
    """Note, before it happens, that lines of the first so many parts get jobs. Raises LeaseLost."""
    if conn.exec_driver_sql(_FED, {"id": id_, "feeder": feeder, "fed": parts}).rowcount == 0:
        raise LeaseLost


def finish_part(
    conn: Connection, id_: UUID, feeder: str, done: DonePart, jobs: Sequence[UUID], *, rest: bool = False
) -> None:
    """A part is done: keep what came of it, and free its jobs' rows. `rest`: all parts after it are done with it.

    Raises LeaseLost. Repeating a call whose commit was in doubt changes nothing.
    """
    given = {
        "id": id_,
        "feeder": feeder,
        "part": done.part,
        "completed": done.tally.completed,
        "failed": done.tally.failed,
        "output": done.output,
        "errors": done.errors,
    }
    if conn.exec_driver_sql(_DONE, given).rowcount == 0:
        written = conn.exec_driver_sql(_WRITTEN, given).one_or_none()
        if written is None or tuple(written) != (done.output, done.errors):
            raise LeaseLost
        return
    if rest:
        conn.exec_driver_sql(_DONE_REST, given).close()
    tokens = {"input_tokens": done.tally.input_tokens, "output_tokens": done.tally.output_tokens}
    conn.exec_driver_sql(_TOKENS, {"id": id_, **tokens}).close()
    conn.exec_driver_sql(_FREE, {"ids": sorted(jobs)}).close()


def finalize(conn: Connection, id_: UUID, feeder: str) -> Batch:
    """All lines have ended: the files are written next. Raises LeaseLost."""
    row = conn.exec_driver_sql(_FINALIZE, {"id": id_, "feeder": feeder}).one_or_none()
    if row is None:
        raise LeaseLost
    return _batch(row)


def part_blobs(conn: Connection, id_: UUID) -> list[tuple[str | None, str | None]]:
    """The blobs of the output and of the errors, part by part."""
    return [(row[0], row[1]) for row in conn.exec_driver_sql(_BLOBS, {"batch": id_})]


def end(
    conn: Connection,
    id_: UUID,
    feeder: str,
    status: Status,
    *,
    errors: Sequence[Mapping[str, Any]] | None = None,
    output: StoredFile | None = None,
    failures: StoredFile | None = None,
) -> None:
    """A batch has ended, with these files. Raises LeaseLost.

    Repeating a call whose commit was in doubt changes nothing.
    """
    given = {
        "id": id_,
        "feeder": feeder,
        "status": status.value,
        "errors": None if errors is None else orjson.dumps(list(errors)).decode(),
        "output_file": output and output.id,
        "error_file": failures and failures.id,
    }
    if conn.exec_driver_sql(_END, given).rowcount == 0:
        if conn.exec_driver_sql(_ENDED_SO, given).one_or_none() is None:
            raise LeaseLost
        return
    for file in (output, failures):
        if file is not None:
            files.put(conn, file)
    conn.exec_driver_sql(_DROP_PARTS, {"id": id_}).close()


def job_states(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, tuple[State, int]]:
    """The states of jobs, and how many bytes their results have. Those without a row are not in the answer."""
    return {id_: (State(state), size) for id_, state, size in conn.exec_driver_sql(_STATES, {"ids": list(ids)})}


def cancel_jobs(conn: Connection, ids: Sequence[UUID]) -> list[UUID]:
    """Cancel those of these jobs that are open; which they were."""
    return [row[0] for row in conn.exec_driver_sql(_CANCEL_JOBS, {"ids": list(ids)})]


def ended_jobs(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, tuple[Job, bytes | None]]:
    """Jobs with their stored results."""
    rows = conn.exec_driver_sql(_ENDED, {"ids": list(ids)})
    return {row[1]: (job_of(row[1:]), None if row[0] is None else bytes(row[0])) for row in rows}


def _batch(row: Sequence[Any]) -> Batch:
    values = dict(zip(_NAMES, row, strict=True))
    return Batch(**values | {"status": Status(values["status"])})
