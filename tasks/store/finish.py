"""Results and final states, one transaction for each batch, under the fence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from tasks.jobs import Event, State
from tasks.messages import Completion
from tasks.store.guards import before
from tasks.store.rows import SUBMITTED, clean, columns, insert_sql, json_text, moment, submitted, unnest, value


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a completion. When it was not `applied`, version and state are the row's own; None: no such row."""

    id: UUID
    version: int
    state: State | None
    applied: bool


_OUTCOME = columns(
    state="text", items_failed="int4", device_ms="float8", attempt="int4", fence="int4", run_at="timestamptz",
    started_at="timestamptz", finished_at="timestamptz", expires_at="timestamptz", worker="text", error="text>jsonb",
    timings="text>jsonb", usage="text>jsonb", result="bytea",
)  # fmt: skip
_ID = columns(id="uuid")
_WHOLE = (*(c for c in SUBMITTED if c.name not in {o.name for o in _OUTCOME}), *_OUTCOME)


def _guard(new: str) -> str:
    """The job is open and nobody newer holds it. A requeue carries the fence after ours, hence the difference."""
    return f"{before(Event.SUCCEED)} AND jobs.fence <= {new}.fence - ({new}.state = 'queued')::int"


def _set(values: Sequence[tuple[str, str]]) -> str:
    spent = ("device_ms", f"coalesce(jobs.device_ms, 0) + {dict(values)['device_ms']}")
    changes = {**dict(values), **dict([spent]), "version": "jobs.version + 1", "lease_until": "NULL"}
    return ", ".join(f"{name} = {new}" for name, new in changes.items())


_RETURNING = "RETURNING jobs.id, jobs.version, jobs.state"

_UPDATE = f"""
UPDATE jobs SET {_set([(c.name, value(c)) for c in _OUTCOME])}
FROM {unnest((*_ID, *_OUTCOME))}
WHERE jobs.id = t.id AND {_guard("t")} {_RETURNING}
"""

_UPSERT = insert_sql(
    _WHOLE,
    f"ON CONFLICT (id) DO UPDATE SET {_set([(c.name, f'EXCLUDED.{c.name}') for c in _OUTCOME])} "
    f"WHERE {_guard('EXCLUDED')} {_RETURNING}",
)

_NOW = "SELECT id, version, state FROM jobs WHERE id = ANY(%(ids)s::uuid[])"


def finish(conn: Connection, completions: Sequence[Completion]) -> list[Ended]:
    """Write how jobs ended, with their results; one answer for each completion, in order.

    A completion applies only to an open job that no newer delivery holds; a job written twice keeps what came first.
    Jobs without a row (`stored=False`) get one. State `queued` requeues: the next attempt, sent again at `run_at`.
    """
    first: dict[UUID, Completion] = {}
    for completion in sorted(completions, key=lambda c: -c.submission.fence):
        first.setdefault(completion.submission.id, completion)
    applied: dict[UUID, Ended] = {}
    ordered = sorted(first.values(), key=lambda c: c.submission.id)
    for statement, batch, parameters in (
        (_UPDATE, [c for c in ordered if c.submission.stored], _ending),
        (_UPSERT, [c for c in ordered if not c.submission.stored], _whole),
    ):
        if batch:
            for id_, version, state in conn.exec_driver_sql(statement, parameters(batch)):
                applied[id_] = Ended(id_, version, State(state), applied=True)
    others = _others(conn, [id_ for id_ in first if id_ not in applied])
    return [
        applied[id_] if id_ in applied and first[id_] is c else _refused(id_, applied | others)
        for c in completions
        for id_ in [c.submission.id]
    ]


def _others(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, Ended]:
    """The rows of jobs that did not take our word."""
    if not ids:
        return {}
    rows = conn.exec_driver_sql(_NOW, {"ids": ids})
    return {id_: Ended(id_, version, State(state), applied=False) for id_, version, state in rows}


def _refused(id_: UUID, known: dict[UUID, Ended]) -> Ended:
    row = known.get(id_)
    return Ended(id_, row.version if row else 0, row.state if row else None, applied=False)


def _whole(batch: Sequence[Completion]) -> dict[str, list[Any]]:
    return {**submitted([c.submission for c in batch]), **_ending(batch)}


def _ending(batch: Sequence[Completion]) -> dict[str, list[Any]]:
    again = [int(c.state == State.QUEUED) for c in batch]
    return {
        "id": [c.submission.id for c in batch],
        "state": [State(c.state).value for c in batch],
        "items_failed": [c.items_failed for c in batch],
        "device_ms": [c.device_ms for c in batch],
        "attempt": [c.submission.attempt + more for c, more in zip(batch, again, strict=True)],
        "fence": [c.submission.fence + more for c, more in zip(batch, again, strict=True)],
        "run_at": [None if not more else moment(c.run_at or c.finished) for c, more in zip(batch, again, strict=True)],
        "started_at": [None if more else moment(c.started) for c, more in zip(batch, again, strict=True)],
        "finished_at": [None if more else moment(c.finished) for c, more in zip(batch, again, strict=True)],
        "expires_at": [
            None if more else moment(c.finished + c.submission.retention_s)
            for c, more in zip(batch, again, strict=True)
        ],
        "worker": [clean(c.worker) or None for c in batch],
        "error": [json_text(c.error) for c in batch],
        "timings": [json_text(c.timings) for c in batch],
        "usage": [json_text(c.usage) for c in batch],
        "result": [None if more else c.result for c, more in zip(batch, again, strict=True)],
    }
