"""Jobs as rows, both ways. Pure.

Text that Postgres cannot hold is made holdable here, since one bad row would fail its whole batch: U+0000 and lone
surrogates become U+FFFD, in text and in JSON; NaN and infinities in JSON become null. The door refuses them earlier
where a caller could have sent them; what is left comes from models and libraries. Inputs and results are bytes and keep
all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgpack
import orjson

from catalog.terms import Lane, Verb
from tasks.jobs import Job, State
from tasks.messages import INLINE_BYTES, Submission

_JOB = tuple(Job.__dataclass_fields__)
JOB_COLUMNS = ", ".join(f"jobs.{name}" for name in _JOB)
"""What a Job is read from, in its order. `inputs`, `result` and `door` are never among them."""

_SUBMISSION = {
    "id": "id",
    "caller": "caller",
    "verb": "verb",
    "model": "model",
    "revision": "revision",
    "lane": "lane",
    "bucket": "bucket",
    "priority": "priority",
    "options": "options",
    "inputs": f"CASE WHEN octet_length(inputs) <= {INLINE_BYTES} THEN inputs END",
    "door": "door",
    "created": "extract(epoch FROM queued_at)::float8",
    "deadline": "extract(epoch FROM deadline_at)::float8",
    "retention_s": "retention_s",
    "tags": "tags",
    "idempotency_key": "idempotency_key",
    "body_hash": "body_hash",
    "fence": "fence",
    "attempt": "attempt",
    "keep": "keep",
    "inputs_blob": "inputs_blob",
}
SUBMISSION_COLUMNS = ", ".join(_SUBMISSION.values())
"""What a Submission is rebuilt from; inputs too large for a message stay where they are."""

_LATEST = datetime(9999, 1, 1, tzinfo=UTC)
_SAFE = str.maketrans({"\0": "\N{REPLACEMENT CHARACTER}"})


def moment(seconds: float) -> datetime:
    """Unix seconds as a UTC time that Postgres can hold; what lies beyond the year 9999 becomes its start."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return _LATEST


def clean(text: str) -> str:
    """The text without what Postgres refuses: U+0000 and lone surrogates become U+FFFD."""
    if text.isascii():
        return text.translate(_SAFE) if "\0" in text else text
    return text.translate(_SAFE).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def json_text(value: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> str | None:
    """The value as JSON that a JSONB column takes."""
    if value is None:
        return None
    try:
        text = orjson.dumps(value, default=str, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    except TypeError:
        text = "\\u0000"
    return text if "\\u0000" not in text else orjson.dumps(_clean_tree(value), default=str).decode()


def _clean_tree(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): _clean_tree(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean_tree(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return float(value)
    return value


def text_array(values: Sequence[str]) -> str:
    """A text[] as Postgres writes it, so that arrays of arrays can pass through one unnest."""
    quoted = (clean(v).replace("\\", "\\\\").replace('"', '\\"') for v in values)
    return "{" + ",".join(f'"{v}"' for v in quoted) + "}"


def door(job: Submission) -> bytes:
    """What the door found out about the items: lengths, costs, faults."""
    return bytes(msgpack.packb([list(job.lengths), list(job.costs), dict(job.faults)]))


def job_of(row: Sequence[Any]) -> Job:
    """The Job of a row of JOB_COLUMNS."""
    values = dict(zip(_JOB, row, strict=True))
    values.update(verb=Verb(values["verb"]), lane=Lane(values["lane"]), state=State(values["state"]))
    values["tags"] = tuple(values["tags"])
    return Job(**values)


def submission_of(row: Sequence[Any]) -> Submission:
    """The Submission of a row of SUBMISSION_COLUMNS: stored, and to be checked by the worker that gets it.

    Its `created` is the start of this series of attempts, so that a retried job's timings begin at the retry.
    """
    values = dict(zip(_SUBMISSION, row, strict=True))
    lengths, costs, faults = msgpack.unpackb(values.pop("door"), strict_map_key=False)
    values.update(verb=Verb(values["verb"]), lane=Lane(values["lane"]), inputs=values["inputs"] or b"")
    values["tags"] = tuple(values["tags"])
    return Submission(**values, lengths=lengths, costs=costs, faults=faults, stored=True, checked=True)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a set-based write: its name, the type of the array that carries it, and the cast out of the array."""

    name: str
    array: str
    cast: str = ""


def columns(**arrays: str) -> tuple[Column, ...]:
    """Columns by the type of their array; `text>jsonb` travels as text and is cast row by row."""
    return tuple(Column(name, *kind.split(">", 1)) for name, kind in arrays.items())


SUBMITTED = columns(
    id="uuid", caller="text", verb="text", model="text", revision="text", lane="text", bucket="text", priority="int4",
    state="text", items="int4", cost_ms="float8", attempt="int4", fence="int4", created_at="timestamptz",
    queued_at="timestamptz", deadline_at="timestamptz", retention_s="int4", tags="text>text[]", options="text>jsonb",
    idempotency_key="text", body_hash="bytea", door="bytea", inputs="bytea",
    keep="bool", inputs_blob="text",
)  # fmt: skip
"""The columns of a job that are known when it is submitted."""


def unnest(columns: Sequence[Column]) -> str:
    """`unnest(…) AS t(…)`: one parameter for each column, holding that column of all rows."""
    arrays = ", ".join(f"%({c.name})b::{c.array}[]" for c in columns)
    return f"unnest({arrays}) AS t({', '.join(c.name for c in columns)})"


def value(column: Column) -> str:
    """A column of `t` with its type restored."""
    return f"t.{column.name}::{column.cast}" if column.cast else f"t.{column.name}"


def insert_sql(columns: Sequence[Column], then: str) -> str:
    """One INSERT for any number of rows, ended by the conflict clause and RETURNING of the caller."""
    names = ", ".join(c.name for c in columns)
    return f"INSERT INTO jobs ({names}) SELECT {', '.join(map(value, columns))} FROM {unnest(columns)} {then}"


def submitted(jobs: Sequence[Submission], state: State = State.QUEUED) -> dict[str, list[Any]]:
    """The parameters of SUBMITTED for these jobs."""
    return {
        "id": [job.id for job in jobs],
        "caller": [clean(job.caller) for job in jobs],
        "verb": [job.verb.value for job in jobs],
        "model": [clean(job.model) for job in jobs],
        "revision": [job.revision and clean(job.revision) for job in jobs],
        "lane": [job.lane.value for job in jobs],
        "bucket": [str(job.bucket) for job in jobs],
        "priority": [job.priority for job in jobs],
        "state": [state.value for _ in jobs],
        "items": [job.items for job in jobs],
        "cost_ms": [job.cost_ms for job in jobs],
        "attempt": [job.attempt for job in jobs],
        "fence": [job.fence for job in jobs],
        "created_at": [moment(job.created) for job in jobs],
        "queued_at": [moment(job.created) for job in jobs],
        "deadline_at": [None if job.deadline is None else moment(job.deadline) for job in jobs],
        "retention_s": [job.retention_s for job in jobs],
        "tags": [text_array(job.tags) for job in jobs],
        "options": [json_text(job.options) for job in jobs],
        "idempotency_key": [job.idempotency_key and clean(job.idempotency_key) for job in jobs],
        "body_hash": [job.body_hash for job in jobs],
        "door": [door(job) for job in jobs],
        "inputs": [None if job.inputs_blob is not None else job.inputs for job in jobs],
        "keep": [job.keep for job in jobs],
        "inputs_blob": [job.inputs_blob for job in jobs],
    }
