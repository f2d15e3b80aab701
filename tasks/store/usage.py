"""What callers used, by day and model: counted in the transaction that ends a job, and kept when its row goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Connection

from tasks.store.rows import clean


@dataclass(frozen=True, slots=True)
class Used:
    """What ended jobs came to. A job that is tried again counts at each of its ends, as it computes each time."""

    jobs: int
    jobs_failed: int
    items: int
    items_failed: int
    tokens: int
    device_ms: float


class By(StrEnum):
    """What a report adds up by, besides the tenant."""

    MODEL = "model"
    DAY = "day"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a report. `key` is a model's name or a day, as the report is by."""

    tenant: str
    key: str
    used: Used


_SUMS = tuple(field.name for field in fields(Used))
_ADDED = ", ".join(f"sum({name})" for name in _SUMS)

# Rows in one order, so that two who count for one source never wait for each other in a ring.
_COUNT = f"""
INSERT INTO usage (caller, day, model, source, {", ".join(_SUMS)})
SELECT caller, (finished_at AT TIME ZONE 'UTC')::date, model, %(source)s,
  count(*), count(*) FILTER (WHERE state = 'failed'), sum(items), sum(items_failed),
  sum(coalesce((jobs.usage ->> 'tokens')::bigint, 0)), sum(coalesce(device_ms, 0))
FROM jobs WHERE id = ANY(%(ids)s::uuid[]) AND finished_at IS NOT NULL
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
ON CONFLICT (caller, day, model, source) DO UPDATE
SET {", ".join(f"{name} = usage.{name} + EXCLUDED.{name}" for name in _SUMS)}
"""

_REPORT = f"""
SELECT caller, {{by}}::text, {_ADDED} FROM usage
WHERE (%(caller)s::text IS NULL OR caller = %(caller)s) AND day BETWEEN %(since)s AND %(until)s
GROUP BY 1, 2 ORDER BY 1, 2 LIMIT %(limit)s
"""

_TOTALS = f"""
SELECT caller, model, {_ADDED} FROM usage GROUP BY 1, 2 ORDER BY sum(items) DESC, 1, 2 LIMIT %(limit)s
"""

_DAY = """
SELECT coalesce(sum(items), 0)::bigint, coalesce(sum(tokens), 0)::bigint FROM usage
WHERE caller = %(caller)s AND day = %(day)s
"""


def count(conn: Connection, ids: Sequence[UUID], source: str) -> None:
    """Add what these jobs used, which have just ended. `source` has rows of its own, so that nobody waits for it."""
    conn.exec_driver_sql(_COUNT, {"ids": list(ids), "source": source})


def report(conn: Connection, caller: str | None, since: date, until: date, by: By, limit: int) -> list[Line]:
    """What one tenant used, or all, from the first of these days to the last."""
    given = {"caller": caller and clean(caller), "since": since, "until": until, "limit": limit}
    return _lines(conn.exec_driver_sql(_REPORT.format(by=by.value), given).all())


def totals(conn: Connection, limit: int) -> list[Line]:
    """What was used of each model by each tenant since counting began, the most items first."""
    return _lines(conn.exec_driver_sql(_TOTALS, {"limit": limit}).all())


def of_day(conn: Connection, caller: str, day: date) -> tuple[int, int]:
    """Items and tokens of a tenant's jobs that ended on this day."""
    items, tokens = conn.exec_driver_sql(_DAY, {"caller": caller, "day": day}).one()
    return items, tokens


def _lines(rows: Sequence[Sequence[object]]) -> list[Line]:
    return [Line(str(row[0]), str(row[1]), Used(*(_number(value) for value in row[2:]))) for row in rows]  # type: ignore[arg-type]


def _number(value: object) -> int | float:
    return value if isinstance(value, float) else int(str(value))
