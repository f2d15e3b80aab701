"""Taking a job that another worker may have held, keeping it while it runs, and noticing when it is no longer ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from tasks.errors import TimeLimit, WorkerLost, as_data
from tasks.jobs import Event, State
from tasks.messages import Submission
from tasks.store.accept import insert
from tasks.store.ended import ended
from tasks.store.guards import before
from tasks.store.rows import clean, columns, json_text, unnest


class Lost(IntEnum):
    """What is known of an earlier delivery: the third part of each entry of a `jobs` frame."""

    IDLE = -1
    """It had started here and was in no batch when its process died: no attempt is spent, whatever its row says."""
    NO = 0
    """A first delivery, or a second message that may duplicate one in other hands."""
    UNKNOWN = 1
    """Redelivered: a dead worker held it, perhaps without starting it."""
    RUNNING = 2
    """It was in a batch whose process died: an attempt is spent."""
    TIMED_OUT = 3
    """Its batch ran over the limit and was killed: an attempt is spent."""


class Verdict(StrEnum):
    """What to do with a claimed job."""

    RUN = "run"
    """Ours, under the new fence."""
    BUSY = "busy"
    """Another worker runs it and is alive. Ack this message; the other holds its own."""
    ENDED = "ended"
    """It has ended already, perhaps by a cancel. Ack, and tell nobody."""
    GIVEN_UP = "given_up"
    """Out of attempts: this claim made it `failed`. Ack, and tell who waits."""
    UNKNOWN = "unknown"
    """No such row: its retention is over. Ack."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How often a job may be tried and delivered before it is given up."""

    max_attempts: int
    max_deliveries: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer for one request. `job`, for the verdict RUN only, has fence, attempt and times of the row, and inputs.

    State, version and error are the row's after the claim; None and 0 when there is no row.
    """

    id: UUID
    verdict: Verdict
    job: Submission | None = None
    state: State | None = None
    version: int = 0
    error: Mapping[str, object] | None = None


_CLAIM = f"""
WITH asked AS MATERIALIZED (
  SELECT jobs.id, t.wants, t.lost, jobs.state, spent,
         jobs.attempt + spent > %(max_attempts)s OR jobs.fence - jobs.first_fence + 1 >= %(max_deliveries)s AS given_up
  FROM unnest(%(id)b::uuid[], %(lost)b::int4[], %(wants)b::bool[]) AS t(id, lost, wants)
  JOIN jobs ON jobs.id = t.id
  CROSS JOIN LATERAL (
    SELECT (t.lost >= {Lost.RUNNING:d}
            OR t.lost > {Lost.IDLE:d} AND (jobs.state = 'running' OR jobs.lease_until IS NOT NULL))::int
  ) AS counted(spent)
  WHERE {before(Event.LOSE)}
    AND NOT (t.lost = {Lost.NO:d} AND jobs.state = 'running' AND coalesce(jobs.lease_until > now(), false))
  ORDER BY jobs.id FOR NO KEY UPDATE OF jobs
)
UPDATE jobs SET
  fence = jobs.fence + 1,
  attempt = CASE WHEN given_up THEN jobs.attempt ELSE jobs.attempt + spent END,
  state = CASE WHEN given_up THEN 'failed' ELSE 'queued' END,
  version = jobs.version + (given_up OR asked.state = 'running')::int,
  error = CASE WHEN NOT given_up THEN jobs.error
               WHEN lost = {Lost.TIMED_OUT:d} THEN %(time_limit)s::jsonb ELSE %(worker_lost)s::jsonb END,
  finished_at = CASE WHEN given_up THEN now() END,
  expires_at = CASE WHEN given_up THEN now() + make_interval(secs => jobs.retention_s) END,
  worker = CASE WHEN given_up THEN jobs.worker ELSE %(worker)s END,
  started_at = CASE WHEN given_up THEN jobs.started_at END,
  lease_until = NULL
FROM asked WHERE jobs.id = asked.id
RETURNING jobs.id, given_up, jobs.state, jobs.version, jobs.fence, jobs.attempt, jobs.error,
          extract(epoch FROM jobs.queued_at)::float8, extract(epoch FROM jobs.deadline_at)::float8,
          CASE WHEN wants AND NOT given_up THEN jobs.inputs END, jobs.inputs_blob, jobs.options
"""


def claim(conn: Connection, requests: Sequence[tuple[Submission, int]], worker: str, limits: Limits) -> list[Claimed]:
    """Take jobs of which another copy may exist; one answer for each request, in order.

    Raises the fence, so that whoever held a job before can no longer commit it. An attempt is counted when the job was
    running: by the message (`Lost.RUNNING`), by the row, or by the lease that a lost run left on it. A job that was
    never stored gets its row here. Where the row has moved on since the message was sent, as by a retry, it decides.
    """
    order = sorted(range(len(requests)), key=lambda i: (requests[i][0].id, -requests[i][1]))
    chosen = {requests[i][0].id: i for i in reversed(order)}
    asked = [requests[i] for i in sorted(chosen.values(), key=lambda i: requests[i][0].id)]
    if unstored := [job for job, _ in asked if not job.stored]:
        insert(conn, unstored)
    taken = _take(conn, asked, worker, limits)
    standing = _standing(conn, [job.id for job, _ in asked if job.id not in taken])
    return [
        taken[job.id] if job.id in taken and chosen[job.id] == i else _left(job.id, taken, standing)
        for i, (job, _) in enumerate(requests)
    ]


def _take(
    conn: Connection, requests: Sequence[tuple[Submission, int]], worker: str, limits: Limits
) -> dict[UUID, Claimed]:
    jobs = {job.id: job for job, _ in requests}
    rows = conn.exec_driver_sql(
        _CLAIM,
        {
            "id": list(jobs),
            "lost": [int(lost) for _, lost in requests],
            "wants": [not job.inputs for job in jobs.values()],
            "worker": clean(worker),
            "max_attempts": limits.max_attempts,
            "max_deliveries": limits.max_deliveries,
            "worker_lost": json_text(as_data(WorkerLost())),
            "time_limit": json_text(as_data(TimeLimit())),
        },
    )
    taken = {}
    for id_, given_up, state, version, fence, attempt, error, created, deadline, inputs, blob, options in rows:
        old = jobs[id_]
        ours = replace(
            old,
            stored=True,
            fence=fence,
            attempt=attempt,
            created=created,
            deadline=deadline,
            inputs=old.inputs or bytes(inputs or b""),
            inputs_blob=blob,
            options=options,
        )
        taken[id_] = (
            Claimed(id_, Verdict.GIVEN_UP, None, State(state), version, error)
            if given_up
            else Claimed(id_, Verdict.RUN, ours, State(state), version, error)
        )
    ended(conn, [one.id for one in taken.values() if one.verdict is Verdict.GIVEN_UP], worker)
    return taken


_STANDING = "SELECT id, state, version, error FROM jobs WHERE id = ANY(%(ids)s::uuid[])"


def _standing(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, Claimed]:
    """What the rows say of jobs that could not be taken."""
    if not ids:
        return {}
    rows = conn.exec_driver_sql(_STANDING, {"ids": ids})
    return {
        id_: Claimed(id_, Verdict.ENDED if State(state).final else Verdict.BUSY, None, State(state), version, error)
        for id_, state, version, error in rows
    }


def _left(id_: UUID, taken: Mapping[UUID, Claimed], standing: Mapping[UUID, Claimed]) -> Claimed:
    """The answer for a request that did not get its job, perhaps because another request of the same call did."""
    if id_ in taken:
        return replace(taken[id_], verdict=Verdict.BUSY if taken[id_].job else Verdict.ENDED, job=None)
    return standing.get(id_, Claimed(id_, Verdict.UNKNOWN))


@dataclass(frozen=True, slots=True)
class Rest:
    """What a message was too small for: the inputs, or the key of their blob, and the options."""

    inputs: bytes
    blob: str | None
    options: Mapping[str, Any]


_REST = "SELECT id, inputs, inputs_blob, options FROM jobs WHERE id = ANY(%(ids)s::uuid[])"


def rest(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, Rest]:
    """The rest of jobs whose messages were too small for it. Jobs without a row are not in the answer."""
    rows = conn.exec_driver_sql(_REST, {"ids": list(ids)})
    return {id_: Rest(bytes(data or b""), blob, options) for id_, data, blob, options in rows}


_HELD = columns(id="uuid", fence="int4")

_START = f"""
UPDATE jobs SET state = 'running', worker = %(worker)s, lease_until = %(lease)s, fence = t.fence,
  started_at = coalesce(jobs.started_at, now()), version = jobs.version + (jobs.state <> 'running')::int
FROM {unnest(_HELD)}
WHERE jobs.id = t.id AND jobs.fence <= t.fence AND {before(Event.START)}
RETURNING jobs.id, jobs.version
"""


def start(
    conn: Connection,
    held: Sequence[tuple[UUID, int]],
    worker: str,
    lease_until: datetime,
    unstored: Sequence[Submission] = (),
) -> dict[UUID, int]:
    """Mark jobs running under a lease, given with their fences; the ids still ours, with their rows' versions.

    Drop the others: they were ended or taken, or they have no row. Those `unstored` get theirs first, so that an
    attempt counts that kills its worker.
    """
    if unstored:
        insert(conn, unstored)
    return dict(_held(conn, _START, worker, [*held, *((job.id, job.fence) for job in unstored)], lease_until))


_BEAT = f"""
UPDATE jobs SET lease_until = %(lease)s, state = 'running', version = jobs.version + (jobs.state <> 'running')::int
FROM {unnest(_HELD)}
WHERE jobs.id = t.id AND jobs.fence = t.fence AND {before(Event.START)} AND jobs.worker = %(worker)s
RETURNING jobs.id, jobs.version
"""


def beat(conn: Connection, worker: str, held: Sequence[tuple[UUID, int]], lease_until: datetime) -> set[UUID]:
    """Renew the leases of running jobs, given with their fences; the ids still ours. The others were ended or taken.

    One that the sweeper queued again, because the database did not hear of us in time, runs on if nobody took it yet.
    """
    return {row[0] for row in _held(conn, _BEAT, worker, held, lease_until)}


def _held(
    conn: Connection, statement: str, worker: str, held: Sequence[tuple[UUID, int]], lease_until: datetime
) -> list[tuple[UUID, int]]:
    if not held:
        return []
    ordered = sorted(held)
    rows = conn.exec_driver_sql(
        statement,
        {
            "id": [id_ for id_, _ in ordered],
            "fence": [fence for _, fence in ordered],
            "worker": clean(worker),
            "lease": lease_until,
        },
    )
    return [(id_, version) for id_, version in rows]
