"""Taking a job that another worker may have held, keeping it while it runs, and noticing when it is no longer ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from uuid import UUID

from sqlalchemy import Connection

from tasks.errors import TimeLimit, WorkerLost, as_data
from tasks.jobs import Event, State
from tasks.messages import Submission
from tasks.store.accept import insert
from tasks.store.guards import before
from tasks.store.rows import SUBMITTED, clean, columns, insert_sql, json_text, moment, submitted, unnest


class Lost(IntEnum):
    """What is known of an earlier delivery: the third part of each entry of a `jobs` frame."""

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
    """The answer for one request. `submission` has the new fence and attempt, and its inputs, when the verdict is RUN.

    State, version and error are the row's after the claim; None and 0 when there is no row.
    """

    submission: Submission
    verdict: Verdict
    state: State | None = None
    version: int = 0
    error: Mapping[str, object] | None = None


_CLAIM = f"""
WITH asked AS MATERIALIZED (
  SELECT jobs.id, t.wants, t.lost, jobs.state,
         (t.lost >= {Lost.RUNNING:d} OR jobs.state = 'running' OR jobs.lease_until IS NOT NULL)::int AS spent
  FROM unnest(%(id)b::uuid[], %(lost)b::int4[], %(wants)b::bool[]) AS t(id, lost, wants)
  JOIN jobs ON jobs.id = t.id
  WHERE {before(Event.LOSE)}
    AND NOT (t.lost = {Lost.NO:d} AND jobs.state = 'running' AND coalesce(jobs.lease_until > %(now)s, false))
  ORDER BY jobs.id FOR NO KEY UPDATE OF jobs
), judged AS (
  SELECT asked.*, jobs.attempt + asked.spent > %(max_attempts)s OR jobs.fence >= %(max_deliveries)s AS given_up
  FROM asked JOIN jobs ON jobs.id = asked.id
)
UPDATE jobs SET
  fence = jobs.fence + 1,
  attempt = CASE WHEN given_up THEN jobs.attempt ELSE jobs.attempt + spent END,
  state = CASE WHEN given_up THEN 'failed' ELSE 'queued' END,
  version = jobs.version + (given_up OR judged.state = 'running')::int,
  error = CASE WHEN NOT given_up THEN jobs.error
               WHEN lost = {Lost.TIMED_OUT:d} THEN %(time_limit)s::jsonb ELSE %(worker_lost)s::jsonb END,
  finished_at = CASE WHEN given_up THEN %(now)s::timestamptz END,
  expires_at = CASE WHEN given_up THEN %(now)s::timestamptz + make_interval(secs => jobs.retention_s) END,
  worker = CASE WHEN given_up THEN jobs.worker ELSE %(worker)s END,
  started_at = CASE WHEN given_up THEN jobs.started_at END,
  lease_until = NULL
FROM judged WHERE jobs.id = judged.id
RETURNING jobs.id, given_up, jobs.state, jobs.version, jobs.fence, jobs.attempt, jobs.error,
          CASE WHEN wants AND NOT given_up THEN jobs.inputs END
"""

_STANDING = "SELECT id, state, version, error FROM jobs WHERE id = ANY(%(ids)s::uuid[])"


def claim(
    conn: Connection, requests: Sequence[tuple[Submission, int]], worker: str, limits: Limits, now: float
) -> list[Claimed]:
    """Take jobs of which another copy may exist; one answer for each request, in order.

    Raises the fence, so that whoever held a job before can no longer commit it. An attempt is counted when the job was
    running: by the message (`Lost.RUNNING`), by the row, or by the lease that a lost run left on it. A job without a row
    that was never stored gets one.
    """
    most: dict[UUID, tuple[Submission, int]] = {}
    for job, lost in requests:
        if job.id not in most or lost > most[job.id][1]:
            most[job.id] = (job, lost)
    unstored = [job for job, _ in most.values() if not job.stored]
    if unstored:
        insert(conn, unstored)
    taken = _take(conn, sorted(most.values(), key=lambda r: r[0].id), worker, limits, now)
    standing = _standing(conn, [id_ for id_ in most if id_ not in taken])
    return [
        taken[job.id] if job.id in taken and most[job.id][0] is job else _left(job, taken, standing)
        for job, _ in requests
    ]


def _take(
    conn: Connection, requests: Sequence[tuple[Submission, int]], worker: str, limits: Limits, now: float
) -> dict[UUID, Claimed]:
    jobs = {job.id: job for job, _ in requests}
    rows = conn.exec_driver_sql(
        _CLAIM,
        {
            "id": list(jobs),
            "lost": [int(lost) for _, lost in requests],
            "wants": [not job.inputs for job in jobs.values()],
            "now": moment(now),
            "worker": clean(worker),
            "max_attempts": limits.max_attempts,
            "max_deliveries": limits.max_deliveries,
            "worker_lost": json_text(as_data(WorkerLost())),
            "time_limit": json_text(as_data(TimeLimit())),
        },
    )
    taken = {}
    for id_, given_up, state, version, fence, attempt, error, inputs in rows:
        verdict = Verdict.GIVEN_UP if given_up else Verdict.RUN
        job = replace(
            jobs[id_], stored=True, fence=fence, attempt=attempt, inputs=jobs[id_].inputs or bytes(inputs or b"")
        )
        taken[id_] = Claimed(job, verdict, State(state), version, error)
    return taken


def _standing(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, tuple[State, int, Mapping[str, object] | None]]:
    if not ids:
        return {}
    rows = conn.exec_driver_sql(_STANDING, {"ids": ids})
    return {id_: (State(state), version, error) for id_, state, version, error in rows}


def _left(
    job: Submission,
    taken: Mapping[UUID, Claimed],
    standing: Mapping[UUID, tuple[State, int, Mapping[str, object] | None]],
) -> Claimed:
    """The answer for a request that did not get its job: the row says why."""
    if job.id in taken:
        other = taken[job.id]
        verdict = Verdict.BUSY if other.verdict is Verdict.RUN else Verdict.ENDED
        return Claimed(job, verdict, other.state, other.version, other.error)
    if job.id not in standing:
        return Claimed(job, Verdict.UNKNOWN)
    state, version, error = standing[job.id]
    return Claimed(job, Verdict.ENDED if state.final else Verdict.BUSY, state, version, error)


_INPUTS = "SELECT id, inputs FROM jobs WHERE id = ANY(%(ids)s::uuid[])"


def inputs(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, bytes]:
    """The inputs of jobs whose messages were too small for them. Jobs without a row are not in the answer."""
    rows = conn.exec_driver_sql(_INPUTS, {"ids": list(ids)})
    return {id_: bytes(data or b"") for id_, data in rows}


_HELD = columns(id="uuid", fence="int4")

_START = f"""
UPDATE jobs SET state = 'running', worker = %(worker)s, lease_until = %(lease)s, fence = t.fence,
  started_at = coalesce(jobs.started_at, %(now)s), version = jobs.version + (jobs.state <> 'running')::int
FROM {unnest(_HELD)}
WHERE jobs.id = t.id AND jobs.fence <= t.fence AND {before(Event.START)}
RETURNING jobs.id, jobs.version
"""

_START_UNSTORED = insert_sql(
    (*SUBMITTED, *columns(worker="text", lease_until="timestamptz", started_at="timestamptz")),
    f"""ON CONFLICT (id) DO UPDATE SET state = 'running', worker = EXCLUDED.worker, lease_until = EXCLUDED.lease_until,
  fence = EXCLUDED.fence, started_at = coalesce(jobs.started_at, EXCLUDED.started_at),
  version = jobs.version + (jobs.state <> 'running')::int
WHERE jobs.fence <= EXCLUDED.fence AND {before(Event.START)} RETURNING jobs.id, jobs.version""",
)


def start(conn: Connection, jobs: Sequence[Submission], worker: str, now: float, lease_until: float) -> dict[UUID, int]:
    """Mark jobs running under a lease; the ids still ours, with their rows' versions. Drop the others: ended or taken.

    A job without a row (`stored=False`) gets one here, so that its attempt counts if it kills its worker.
    """
    stored = sorted((job for job in jobs if job.stored), key=lambda job: job.id)
    unstored = sorted((job for job in jobs if not job.stored), key=lambda job: job.id)
    ours: dict[UUID, int] = {}
    if stored:
        common = {"worker": clean(worker), "now": moment(now), "lease": moment(lease_until)}
        held = {"id": [job.id for job in stored], "fence": [job.fence for job in stored]}
        ours |= _versions(conn, _START, common | held)
    if unstored:
        extra = {
            "worker": [clean(worker) for _ in unstored],
            "lease_until": [moment(lease_until) for _ in unstored],
            "started_at": [moment(now) for _ in unstored],
        }
        ours |= _versions(conn, _START_UNSTORED, submitted(unstored, State.RUNNING) | extra)
    return ours


def _versions(conn: Connection, statement: str, parameters: Mapping[str, object]) -> dict[UUID, int]:
    return {row[0]: row[1] for row in conn.exec_driver_sql(statement, dict(parameters))}


_BEAT = f"""
UPDATE jobs SET lease_until = %(lease)s FROM {unnest(_HELD)}
WHERE jobs.id = t.id AND jobs.fence = t.fence AND jobs.state = 'running' AND jobs.worker = %(worker)s
RETURNING jobs.id
"""


def beat(conn: Connection, worker: str, held: Sequence[tuple[UUID, int]], lease_until: float) -> set[UUID]:
    """Renew the leases of running jobs, given with their fences; the ids still ours. The others were ended or taken."""
    if not held:
        return set()
    ordered = sorted(held)
    rows = conn.exec_driver_sql(
        _BEAT,
        {
            "id": [id_ for id_, _ in ordered],
            "fence": [fence for _, fence in ordered],
            "worker": clean(worker),
            "lease": moment(lease_until),
        },
    )
    return {row[0] for row in rows}
