"""Webhook deliveries, written in the transaction that brings about what they tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from sqlalchemy import Connection

from tasks import batches
from tasks.backfills import backfill
from tasks.messages import Submission
from tasks.prepare import job_id
from tasks.store.rows import JOB_COLUMNS, clean, columns, job_of, json_text, unnest, value
from tasks.webhooks import events

_REGISTER = """
INSERT INTO job_webhooks (job, url, secret, inline)
SELECT * FROM unnest(%(job)b::uuid[], %(url)b::text[], %(secret)b::bytea[], %(inline)b::bool[])
ON CONFLICT (job) DO NOTHING
"""

# A line of a batch or a document of a backfill is told of with the whole, unless it names a receiver of its own.
_PARTS_OF = (batches.TAG + batches.PREFIX, backfill.TAG + backfill.PREFIX)
_PART = (
    "EXISTS (SELECT 1 FROM unnest(jobs.tags) AS t WHERE "
    + " OR ".join(f"starts_with(t, '{begins}')" for begins in _PARTS_OF)
    + ")"
)

_TOLD = f"""
SELECT NULL::uuid, w.url, w.secret, w.inline, {JOB_COLUMNS}
FROM job_webhooks AS w JOIN jobs ON jobs.id = w.job WHERE w.job = ANY(%(ids)s::uuid[])
UNION ALL
SELECT e.id, NULL, NULL, e.inline, {JOB_COLUMNS}
FROM webhook_endpoints AS e JOIN jobs ON jobs.caller = e.caller
WHERE jobs.id = ANY(%(ids)s::uuid[]) AND e.disabled_at IS NULL
  AND e.events && ARRAY['*', 'job.*', 'job.' || jobs.state] AND NOT {_PART}
"""

_ENDPOINTS = """
SELECT id, inline FROM webhook_endpoints
WHERE caller = %(caller)s AND disabled_at IS NULL AND events && %(events)s::text[] ORDER BY id
"""

_COLUMNS = columns(
    id="uuid", caller="text", endpoint="uuid", target="text", url="text",
    secret="bytea",  # noqa: S106 - the type of the column
    inline="bool", type="text", object="uuid", data="text>jsonb", created_at="timestamptz", next_at="timestamptz",
)  # fmt: skip
# An endpoint that goes while jobs end is told nothing: the row of its delivery would have the transaction of all these
# jobs wait for the deletion, and then fail.
_WRITE = f"""
INSERT INTO deliveries ({", ".join(c.name for c in _COLUMNS)})
SELECT {", ".join(map(value, _COLUMNS))} FROM {unnest(_COLUMNS)}
WHERE t.endpoint IS NULL
  OR EXISTS (SELECT 1 FROM webhook_endpoints AS e WHERE e.id = t.endpoint FOR KEY SHARE SKIP LOCKED)
"""


def register(conn: Connection, jobs: Sequence[Submission]) -> None:
    """Keep whom these new jobs want to be told; those without a webhook need nothing."""
    hooks = [(job.id, job.webhook) for job in jobs if job.webhook is not None]
    if hooks:
        given = {
            "job": [id_ for id_, _ in hooks],
            "url": [hook.url for _, hook in hooks],
            "secret": [hook.secret for _, hook in hooks],
            "inline": [hook.inline for _, hook in hooks],
        }
        conn.exec_driver_sql(_REGISTER, given).close()


def write(conn: Connection, ids: Sequence[UUID]) -> frozenset[UUID]:
    """Deliveries for these jobs, which have just ended; the jobs that have any.

    For callers who are not told of anything it is one look, whatever the number of jobs.
    """
    found = conn.exec_driver_sql(_TOLD, {"ids": list(ids)}).all()
    rows = []
    for endpoint, url, secret, inline, *columns_ in found:
        job = job_of(columns_)
        kind = f"job.{job.state.value}"
        rows.append(_row(job.caller, kind, job.id, events.of_job(job), endpoint, url, secret, inline=inline))
    _insert(conn, rows)
    return frozenset(row["object"] for row in rows)


def tell(conn: Connection, caller: str, kind: str, id_: UUID, data: Mapping[str, Any]) -> int:
    """Deliveries of an event of a batch or a backfill to the caller's endpoints; how many."""
    found = conn.exec_driver_sql(_ENDPOINTS, {"caller": clean(caller), "events": events.matching(kind)}).all()
    _insert(conn, [_row(caller, kind, id_, data, endpoint, inline=inline) for endpoint, inline in found])
    return len(found)


def test(conn: Connection, caller: str, endpoint: UUID, data: Mapping[str, Any]) -> UUID:
    """A delivery that tells one endpoint of nothing; its id."""
    row = _row(caller, events.TEST, endpoint, data, endpoint)
    _insert(conn, [row])
    id_: UUID = row["id"]
    return id_


def _row(
    caller: str,
    kind: str,
    object_: UUID,
    data: Mapping[str, Any],
    endpoint: UUID | None,
    url: str | None = None,
    secret: bytes | None = None,
    *,
    inline: bool = False,
) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "id": job_id(now.timestamp()),
        "caller": clean(caller),
        "endpoint": endpoint,
        # A host is one target for each caller: what others have wait for it must hold nobody up.
        "target": f"endpoint {endpoint}"
        if endpoint is not None
        else f"host {urlsplit(url or '').netloc.lower()} of {clean(caller)}",
        "url": url,
        "secret": secret,
        "inline": inline,
        "type": kind,
        "object": object_,
        "data": json_text(data),
        "created_at": now,
        "next_at": now,
    }


def _insert(conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        conn.exec_driver_sql(_WRITE, {c.name: [row[c.name] for row in rows] for c in _COLUMNS}).close()
