"""Results and final states, one transaction for each batch, under the fence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from tasks.jobs import Event, State
from tasks.messages import Completion
from tasks.store.ended import ended as ended_now
from tasks.store.guards import before
from tasks.store.rows import SUBMITTED, clean, columns, insert_sql, json_text, moment, submitted, unnest, value


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a completion. When it was not `applied`, version and state are the row's own; None: no such row."""

    id: UUID
    version: int
    state: State | None
    applied: bool
    told: bool = False
    """somebody is to be told by webhook"""


_OUTCOME = columns(
    state="text", items_failed="int4", device_ms="float8", attempt="int4", fence="int4", run_at="timestamptz",
    started_at="timestamptz", finished_at="timestamptz", expires_at="timestamptz", worker="text", error="text>jsonb",
    timings="text>jsonb", usage="text>jsonb", result="bytea",
    result_blob="text",
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

_ROWS = "SELECT id, version, state, fence, worker, finished_at, run_at FROM jobs WHERE id = ANY(%(ids)s::uuid[])"


def finish(conn: Connection, completions: Sequence[Completion]) -> list[Ended]:
    """Write how jobs ended, with their results; one answer for each completion, in order.

    A completion applies only to an open job that no newer delivery holds; a job written twice keeps what came first.
    Jobs without a row (`stored=False`) get one. State `queued` requeues: the next attempt, sent again at `run_at`.
    Repeating a call whose commit was in doubt answers as the first would have.
    """
    order = sorted(range(len(completions)), key=lambda i: -completions[i].submission.fence)
    chosen = {completions[i].submission.id: i for i in reversed(order)}
    batch = sorted((completions[i] for i in chosen.values()), key=lambda c: c.submission.id)
    ended: dict[UUID, Ended] = {}
    # New rows first, as `start` and `claim` do with the same jobs: one order of locks for all.
    for statement, part, parameters in (
        (_UPSERT, [c for c in batch if not c.submission.stored], _whole),
        (_UPDATE, [c for c in batch if c.submission.stored], _ending),
    ):
        if part:
            for id_, version, state in conn.exec_driver_sql(statement, parameters(part)):
                ended[id_] = Ended(id_, version, State(state), applied=True)
    final = [one.id for one in ended.values() if one.state and one.state.final]
    kept = {c.submission.id for c in batch if c.submission.keep}
    told = ended_now(
        conn,
        final,
        _source(completions),
        unkept=[id_ for id_ in final if id_ not in kept],
    )
    ended |= {id_: replace(ended[id_], told=True) for id_ in told}
    if refused := [c for c in batch if c.submission.id not in ended]:
        ended |= _standing(conn, refused)
    return [
        answer if chosen[answer.id] == i else replace(answer, applied=False)
        for i, c in enumerate(completions)
        for answer in [ended[c.submission.id]]
    ]


def _source(completions: Sequence[Completion]) -> str:
    """Who counts what they used. The lanes are written side by side, and so have rows of their own."""
    return f"{completions[0].worker}/{completions[0].submission.lane}" if completions else ""


def _standing(conn: Connection, refused: Sequence[Completion]) -> dict[UUID, Ended]:
    """What the rows say of completions that changed nothing: applied if the row holds this very write already."""
    ids = [c.submission.id for c in refused]
    rows = {row[0]: row for row in conn.exec_driver_sql(_ROWS, {"ids": ids})}
    standing = {}
    for completion, column in zip(refused, _columns(_ending(refused)), strict=True):
        id_ = completion.submission.id
        if id_ not in rows:
            standing[id_] = Ended(id_, 0, None, applied=False)
            continue
        _, version, *written = rows[id_]
        ours = [column[name] for name in ("state", "fence", "worker", "finished_at", "run_at")]
        standing[id_] = Ended(id_, version, State(written[0]), applied=written == ours)
    return standing


def _columns(arrays: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Arrays by column as one mapping for each row."""
    return [dict(zip(arrays, row, strict=True)) for row in zip(*arrays.values(), strict=True)]


def _whole(batch: Sequence[Completion]) -> dict[str, list[Any]]:
    # What is not kept is not written: not even for as long as the transaction takes.
    unkept = [not c.submission.keep and State(c.state).final for c in batch]
    jobs = [replace(c.submission, inputs=b"") if gone else c.submission for c, gone in zip(batch, unkept, strict=True)]
    return {**submitted(jobs), **_ending(batch)}


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
        "result_blob": [None if more else c.result_blob for c, more in zip(batch, again, strict=True)],
    }
