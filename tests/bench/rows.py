"""What the database says about jobs: the truth that the other observations are checked against."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

SETTLE_S = 120.0

_ENDED = """
SELECT id, state, extract(epoch FROM created_at) AS created, extract(epoch FROM finished_at) AS finished,
       NULL AS committed
  FROM jobs WHERE id = ANY(%s)
"""
_COMMITTED = _ENDED.replace("NULL", "extract(epoch FROM pg_xact_commit_timestamp(xmin))")


@dataclass(frozen=True, slots=True)
class Ended:
    """A job's row. Times are Unix seconds; `committed` is when the transaction that ended it committed, if kept."""

    state: str
    created: float
    finished: float | None
    committed: float | None


class Rows:
    """Reads the jobs table over one connection."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("postgresql+psycopg://", "postgresql://", 1)

    async def _read(self, query: str, values: Sequence[object] = ()) -> list[dict[str, object]]:
        connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        async with connection, connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(query.encode(), values)
            return await cursor.fetchall()

    async def keep_commit_times(self) -> None:
        """Make the server note when each transaction commits. Takes effect with its next start."""
        connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        async with connection:
            await connection.execute("ALTER SYSTEM SET track_commit_timestamp = on")

    async def open_jobs(self) -> int:
        """Jobs that have not ended."""
        (row,) = await self._read("SELECT count(*) AS open FROM jobs WHERE state IN ('queued', 'running')")
        return int(str(row["open"]))

    async def settle(self) -> None:
        """Wait until no job is open. Raises TimeoutError."""
        async with asyncio.timeout(SETTLE_S):
            while await self.open_jobs():  # noqa: ASYNC110 - a count of rows sends no signal
                await asyncio.sleep(0.1)

    async def ended(self, ids: Sequence[UUID], *, commits: bool = False) -> dict[UUID, Ended]:
        """The rows of these jobs, with commit times if the server keeps them."""
        rows = await self._read(_COMMITTED if commits else _ENDED, (list(ids),))
        return {
            row["id"]: Ended(
                str(row["state"]), _number(row["created"]), _moment(row["finished"]), _moment(row["committed"])
            )
            for row in rows
            if isinstance(row["id"], UUID)
        }

    async def commits_kept(self) -> bool:
        """Whether the server notes commit times now."""
        (row,) = await self._read("SHOW track_commit_timestamp")
        return row["track_commit_timestamp"] == "on"


def _number(value: object) -> float:
    return float(str(value))


def _moment(value: object) -> float | None:
    return None if value is None else _number(value)
