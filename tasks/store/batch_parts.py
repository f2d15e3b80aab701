"""Parts of batches, and the jobs of their lines.

A part is done once: its counts, the blobs of its lines and the end of its jobs' rows are one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from tasks.batches import Part, Tally
from tasks.jobs import Event, State
from tasks.store import usage
from tasks.store.batch_leases import OURS
from tasks.store.change import CANCELLED
from tasks.store.guards import before
from tasks.store.leases import LeaseLost
from tasks.store.read import Result
from tasks.store.rows import JOB_COLUMNS, job_of
from tasks.store.spent import freeing


@dataclass(frozen=True, slots=True)
class DonePart:
    """What came of a part: the blobs of its lines, where it has any."""

    part: int
    tally: Tally
    output: str | None
    errors: str | None


_PART_NAMES = tuple(Part.__dataclass_fields__)

_OPEN_PARTS = f"""
SELECT {", ".join(_PART_NAMES)} FROM batch_parts
WHERE batch = %(batch)s AND part > %(after)s AND NOT done ORDER BY part LIMIT %(limit)s
"""

_SUM = "SELECT coalesce(sum(completed), 0), coalesce(sum(failed), 0) FROM batch_parts WHERE batch = %(batch)s AND done"

_DONE = f"""
UPDATE batch_parts SET done = true, completed = %(completed)s, failed = %(failed)s, output = %(output)s,
  errors = %(errors)s
FROM batches WHERE batch = batches.id AND {OURS} AND part = %(part)s AND NOT done
"""

_DONE_REST = """
UPDATE batch_parts SET done = true, failed = lines WHERE batch = %(id)s AND part > %(part)s AND NOT done
"""

_WRITTEN = "SELECT output, errors FROM batch_parts WHERE batch = %(id)s AND part = %(part)s AND done"

_TOKENS = """
UPDATE batches SET input_tokens = input_tokens + %(input_tokens)s, output_tokens = output_tokens + %(output_tokens)s
WHERE id = %(id)s
"""

_FREE = freeing("DELETE FROM jobs WHERE id = ANY(%(ids)s::uuid[])")

_BLOBS = """
SELECT output, errors FROM batch_parts
WHERE batch = %(batch)s AND (output IS NOT NULL OR errors IS NOT NULL) ORDER BY part
"""

_STATES = "SELECT id, state, coalesce(octet_length(result), 0) FROM jobs WHERE id = ANY(%(ids)s::uuid[])"

_SOURCE = "feeders"
"""Who counts what the jobs that they cancel have used."""

_CANCEL_JOBS = f"""
UPDATE jobs SET {CANCELLED}
WHERE id IN (
  SELECT id FROM jobs WHERE id = ANY(%(ids)s::uuid[]) AND {before(Event.CANCEL)} ORDER BY id FOR NO KEY UPDATE
) RETURNING id
"""

_ENDED = f"SELECT result, result_blob, {JOB_COLUMNS} FROM jobs WHERE id = ANY(%(ids)s::uuid[])"


def open_parts(conn: Connection, id_: UUID, after: int, limit: int) -> list[Part]:
    """Parts that are not done, in order, from beyond the part of the number `after`."""
    rows = conn.exec_driver_sql(_OPEN_PARTS, {"batch": id_, "after": after, "limit": limit})
    return [Part(*row) for row in rows]


def tally(conn: Connection, id_: UUID) -> Tally:
    """How many lines have ended in the parts that are done."""
    completed, failed = conn.exec_driver_sql(_SUM, {"batch": id_}).one()
    return Tally(int(completed), int(failed))


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


def part_blobs(conn: Connection, id_: UUID) -> list[tuple[str | None, str | None]]:
    """The blobs of the output and of the errors, part by part."""
    return [(row[0], row[1]) for row in conn.exec_driver_sql(_BLOBS, {"batch": id_})]


def job_states(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, tuple[State, int]]:
    """The states of jobs, and how many bytes of results are in their rows. Those without one are not in the answer."""
    return {id_: (State(state), size) for id_, state, size in conn.exec_driver_sql(_STATES, {"ids": list(ids)})}


def cancel_jobs(conn: Connection, ids: Sequence[UUID]) -> list[UUID]:
    """Cancel those of these jobs that are open; which they were."""
    cancelled = [row[0] for row in conn.exec_driver_sql(_CANCEL_JOBS, {"ids": list(ids)})]
    usage.count(conn, cancelled, _SOURCE)
    return cancelled


def ended_jobs(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, Result]:
    """Jobs with their stored results, or the keys of their blobs."""
    rows = conn.exec_driver_sql(_ENDED, {"ids": list(ids)})
    return {
        id_: Result(job_of([id_, *columns]), None if data is None else bytes(data), blob)
        for data, blob, id_, *columns in rows
    }
