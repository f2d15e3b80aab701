"""What is told: the types of events, and what each says. Pure.

An event is thin: it says what has ended, how, and where to read more. Nothing that a caller sent is in it but its own
ids and tags, and nothing that a model made, unless the small result of a job was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from catalog.errors import suggestion
from tasks.backfills.backfill import PREFIX as BACKFILL
from tasks.backfills.backfill import Backfill
from tasks.batches import PREFIX as BATCH
from tasks.batches import Batch
from tasks.errors import InvalidRequest
from tasks.files import SHOWN as FILE
from tasks.files import shown_id
from tasks.jobs import Job

OF_JOBS = ("job.succeeded", "job.failed", "job.cancelled", "job.expired")
OF_BATCHES = ("batch.completed", "batch.failed", "batch.expired", "batch.cancelled")
OF_BACKFILLS = ("backfill.completed", "backfill.failed", "backfill.cancelled")
TEST = "webhook.test"
TYPES = (*OF_JOBS, *OF_BATCHES, *OF_BACKFILLS, TEST)
"""All types of events. TEST is sent on demand, whatever an endpoint asks for."""

ALL = "*"
PATTERNS = (ALL, "job.*", "batch.*", "backfill.*", *TYPES[:-1])
"""What an endpoint may ask for."""

MOST_INLINE_BYTES = 64 * 1024
"""The largest result, as JSON, that goes along with an event."""


def checked_events(asked: Sequence[str], param: str = "events") -> list[str]:
    """Which events an endpoint asks for; each of them once. Raises InvalidRequest."""
    if not asked:
        raise InvalidRequest(f"{param!r} must name at least one event, or be left out for all.", param=param)
    for place, one in enumerate(asked):
        if one not in PATTERNS:
            where = f"{param}[{place}]"
            raise InvalidRequest(f"{where!r} is no event{suggestion(one, PATTERNS)}", param=where)
    return list(dict.fromkeys(asked))


def matching(kind: str) -> list[str]:
    """What an endpoint may have asked for that is told of this type."""
    return [ALL, f"{kind.partition('.')[0]}.*", kind]


def of_job(job: Job) -> dict[str, Any]:
    """What is said of a job that has ended."""
    base = f"/v1/jobs/{job.id}"
    error = None if job.error is None else {name: job.error.get(name) for name in ("code", "retryable")}
    return {
        "id": str(job.id),
        "object": "job",
        "status": job.state.value,
        "verb": job.verb.value,
        "model": job.model,
        "lane": job.lane.value,
        "items": job.items,
        "items_failed": job.items_failed,
        "tags": list(job.tags),
        "error": error,
        "usage": job.usage,
        "created_at": utc(job.created_at),
        "finished_at": None if job.finished_at is None else utc(job.finished_at),
        "urls": {"self": base, "result": f"{base}/result"},
    }


def of_batch(batch: Batch) -> dict[str, Any]:
    """What is said of a batch that has ended."""
    id_ = shown_id(BATCH, batch.id)
    return {
        "id": id_,
        "object": "batch",
        "status": batch.status.value,
        "endpoint": batch.endpoint,
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "metadata": batch.labels,
        "output_file_id": _file(batch.output_file),
        "error_file_id": _file(batch.error_file),
        "urls": _urls(f"/v1/batches/{id_}", output=batch.output_file, errors=batch.error_file),
    }


def of_backfill(backfill: Backfill) -> dict[str, Any]:
    """What is said of a backfill that has ended."""
    id_ = shown_id(BACKFILL, backfill.id)
    counts = ("total", "completed", "failed", "skipped")
    return {
        "id": id_,
        "object": "backfill",
        "status": backfill.status.value,
        "name": backfill.name,
        "documents": {name: getattr(backfill, name) for name in counts},
        "rows": backfill.rows,
        "output_file_id": _file(backfill.output_file),
        "report_file_id": _file(backfill.report_file),
        "urls": _urls(f"/v1/backfills/{id_}", output=backfill.output_file, report=backfill.report_file),
    }


def _file(id_: UUID | None) -> str | None:
    return None if id_ is None else shown_id(FILE, id_)


def _urls(own: str, **files: UUID | None) -> dict[str, str]:
    """The paths of what has ended and of its files, those that it has."""
    return {"self": own} | {
        name: f"/v1/files/{shown_id(FILE, id_)}/content" for name, id_ in files.items() if id_ is not None
    }


def utc(at: datetime) -> str:
    """A time as it is written in all payloads."""
    return at.isoformat().replace("+00:00", "Z")


def payload(kind: str, at: datetime, data: Mapping[str, Any], *, base: str = "", result: Any = None) -> bytes:
    """The body of an attempt, the same in each. `base` goes before the paths, `result` along with the data."""
    told = dict(data)
    if base and isinstance(told.get("urls"), Mapping):
        told["urls"] = {name: base.rstrip("/") + path for name, path in told["urls"].items()}
    if result is not None:
        told["result"] = result
    return orjson.dumps({"type": kind, "timestamp": utc(at), "data": told}, option=orjson.OPT_SERIALIZE_NUMPY)
