"""New jobs: one statement for a whole group commit, and one job for each idempotency key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import Connection

from tasks.messages import Submission
from tasks.store import outbox
from tasks.store.rows import SUBMITTED, clean, insert_sql, submitted
from tasks.store.spent import freeing


@dataclass(frozen=True, slots=True)
class Existing:
    """The job that an idempotency key already leads to. Compare `body_hash` before you answer with it."""

    id: UUID
    body_hash: bytes | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a group: `existing` maps the ids of submissions that got no row of their own to their job's."""

    existing: Mapping[UUID, Existing] = field(default_factory=dict)


_INSERT = insert_sql(SUBMITTED, "ON CONFLICT DO NOTHING RETURNING id")

_KEYED = """
SELECT t.id, jobs.id, jobs.body_hash, coalesce(jobs.expires_at <= now(), false)
FROM unnest(%(id)s::uuid[], %(caller)s::text[], %(key)s::text[]) AS t(id, caller, key)
JOIN jobs ON jobs.caller = t.caller AND jobs.idempotency_key = t.key
"""

_FREE = freeing("DELETE FROM jobs WHERE id = ANY(%(ids)s::uuid[]) AND expires_at <= now()")

_ROUNDS = 5


def insert(conn: Connection, jobs: Sequence[Submission]) -> Accepted:
    """Rows for queued jobs. A submission whose (caller, key) has a job already gets no row; repeating a call adds none.

    Simultaneous calls with one key, in one process or many, end with one row. The key of a job that ended in any way
    still leads to it until its retention ends or it is deleted; then the key is free again.
    """
    existing: dict[UUID, Existing] = {}
    left = sorted(jobs, key=_lock_order)
    for _ in range(_ROUNDS):
        if not left:
            break
        done = {row[0] for row in conn.exec_driver_sql(_INSERT, submitted(left))}
        outbox.register(conn, [job for job in left if job.webhook is not None and job.id in done])
        left = [job for job in left if job.id not in done and job.idempotency_key is not None]
        if left:
            existing |= _holders(conn, left)
            left = [job for job in left if job.id not in existing]
    return Accepted({ours: held for ours, held in existing.items() if held.id != ours})


_BLOBS = "SELECT inputs_blob FROM jobs WHERE id = ANY(%(ids)s::uuid[]) AND inputs_blob IS NOT NULL"


def unused(conn: Connection, jobs: Sequence[Submission]) -> list[str]:
    """The blobs of these jobs' inputs that their rows do not name, as each was there already with another."""
    ours = {job.id: job.inputs_blob for job in jobs if job.inputs_blob is not None}
    if not ours:
        return []
    named = set(conn.exec_driver_sql(_BLOBS, {"ids": sorted(ours)}).scalars())
    return [key for key in ours.values() if key not in named]


def holder(conn: Connection, job: Submission) -> Existing | None:
    """The job that this one's key leads to already, if it has a key and its retention has not ended."""
    return None if job.idempotency_key is None else _holders(conn, [job]).get(job.id)


def _holders(conn: Connection, jobs: Sequence[Submission]) -> dict[UUID, Existing]:
    """The jobs that hold these keys. Those past their retention are deleted, so that the next round gets the key."""
    found = conn.exec_driver_sql(
        _KEYED,
        {
            "id": [job.id for job in jobs],
            "caller": [clean(job.caller) for job in jobs],
            "key": [clean(job.idempotency_key or "") for job in jobs],
        },
    ).all()
    over = [row[1] for row in found if row[3]]
    if over:
        conn.exec_driver_sql(_FREE, {"ids": over}).close()
    return {row[0]: Existing(row[1], row[2]) for row in found if not row[3]}


def _lock_order(job: Submission) -> tuple[bool, str, str, UUID]:
    """Calls that share keys or ids take them in one order, so that none waits for another in a circle.

    Jobs without a key go by id, and first: so does `finish` with the same jobs.
    """
    key = job.idempotency_key
    return (key is not None, job.caller if key is not None else "", key or "", job.id)
