"""Lists and filters over a million stored jobs, as callers see them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from tests.bench.case import Case, Found, Measure, Pace, Stack
from tests.bench.client import Connection, ask_json, request
from tests.bench.figures import at_most, latency

MOST, QUICK = 1_000_000, 200_000
PAGES = 200
"""Pages of each kind in one round."""

FILTERS = {
    "all, newest first": "",
    "failed": "&status=failed",
    "cancelled, which are rare": "&status=cancelled",
    "one model of twenty": "&model=bench/stored-7",
    "failed of one model": "&status=failed&model=bench/stored-7",
    "a tag of one in a thousand": "&tag=rare",
    "a tag of one in four": "&tag=common",
}

_FILL = """
INSERT INTO jobs (id, caller, verb, model, lane, bucket, priority, state, items, items_failed, cost_ms, device_ms,
  created_at, queued_at, started_at, finished_at, expires_at, worker, retention_s, tags, options, error, timings, usage,
  door, result)
SELECT uuidv7(-make_interval(secs => (%(rows)s - n) * 0.05)), 'default', 'encode', 'bench/stored-' || n %% 20,
  'interactive', 'xs', 5, s.state, 1, (s.state = 'failed')::int, 0.5, 0.4,
  s.at, s.at, s.at, s.at, now() + interval '30 days', 'bench', 2592000, s.tags, '{}',
  CASE WHEN s.state = 'failed'
    THEN jsonb_build_object('code', 'stored_' || n %% 7, 'message', 'No reason.', 'retryable', false) END,
  '{"admit_ms": 1, "queue_ms": 1, "load_ms": 0, "batch_wait_ms": 0, "device_ms": 0.4, "commit_ms": 1, "total_ms": 3.4}',
  '{"tokens": 5, "items": 1}', '\\x93909080', '\\x9180'
FROM generate_series(%(first)s::int, %(last)s::int) AS n, LATERAL (
  SELECT CASE WHEN n %% 50 = 0 THEN 'failed' WHEN n %% 5000 = 1 THEN 'cancelled' ELSE 'succeeded' END AS state,
    now() - make_interval(secs => (%(rows)s - n) * 0.05) AS at,
    CASE WHEN n %% 1000 = 3 THEN '{rare}' WHEN n %% 4 = 0 THEN '{common}' ELSE '{}' END::text[] AS tags) AS s
"""
_STEP = 50_000


@asynccontextmanager
async def opened(stack: Stack, pace: Pace) -> AsyncIterator[Measure]:
    """Rows as jobs leave them, written straight into the table. They stay: run this last."""
    rows = QUICK if pace.quick else MOST
    await _fill(stack, rows)

    async def measure() -> Found:
        found = Found()
        for name, filters in FILTERS.items():
            found.add(*latency(f"{rows:,} jobs: {name}", await _walk(stack, filters), p99=at_most(50)))
        return found

    yield measure


async def _fill(stack: Stack, rows: int) -> None:
    url = stack.database_url.replace("postgresql+psycopg://", "postgresql://", 1)
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    async with connection:
        for first in range(1, rows + 1, _STEP):
            values = {"rows": rows, "first": first, "last": min(rows, first + _STEP - 1)}
            await connection.execute(_FILL.encode(), values)
        await connection.execute("VACUUM ANALYZE jobs")


async def _walk(stack: Stack, filters: str) -> list[float]:
    """Milliseconds of each page, from the newest on and over again at the end."""
    spent = []
    cursor = ""
    connection = await Connection.open(stack.address)
    try:
        for _ in range(PAGES):
            began = time.perf_counter()
            page = await ask_json(connection, request("GET", f"/v1/jobs?limit=50{filters}{cursor}"), (200,))
            spent.append((time.perf_counter() - began) * 1000)
            cursor = f"&cursor={page['next_cursor']}" if page["has_more"] else ""
    finally:
        await connection.close()
    return spent


CASE = Case(
    name="stored",
    title="pages of 50 of the list of jobs, over HTTP, one client",
    opened=opened,
    notes=(f"the quick run has {QUICK:,} rows; each kind is walked page by page, {PAGES} pages",),
)
