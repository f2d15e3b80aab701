"""Dead letters: failed jobs by reason, and trying many of them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from catalog.terms import Verb
from tasks.dead import KILLERS, MOST_GROUPS, Dead, Group, refusal
from tasks.jobs import State
from tasks.store.change import AGAIN
from tasks.store.rows import clean

SCAN_ROWS = 200_000
"""The newest failed jobs of a caller that are looked at for groups."""

_KEPT = "(expires_at IS NULL OR expires_at > %(now)s)"
_FILTERS = {
    "code": "error ->> 'code' = %(code)s",
    "model": "model = %(model)s",
    "verb": "verb = %(verb)s",
    "lane": "lane = %(lane)s",
    "since": "finished_at >= %(since)s",
    "until": "finished_at < %(until)s",
}

# Locked in the order of their ids, as all do who change several jobs.
_REDRIVE = f"""
WITH old AS MATERIALIZED (
  SELECT id, result_blob FROM jobs
  WHERE id = ANY(%(ids)s::uuid[]) AND caller = %(caller)s AND state = 'failed' AND keep AND {_KEPT}
  ORDER BY id FOR UPDATE SKIP LOCKED
), noted AS (
  INSERT INTO spent_blobs (key) SELECT result_blob FROM old WHERE result_blob IS NOT NULL ON CONFLICT DO NOTHING
)
UPDATE jobs SET {AGAIN} FROM old WHERE jobs.id = old.id RETURNING jobs.id
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A failed job that may be tried again: what limits count of it."""

    id: UUID
    caller: str
    items: int


def groups(conn: Connection, caller: str, dead: Dead, now: datetime) -> tuple[list[Group], bool]:
    """Failed jobs by code, model and verb, the most first; and whether all were looked at (see SCAN_ROWS)."""
    where, given = _conditions(dead)
    rows = conn.exec_driver_sql(
        f"""
        SELECT error ->> 'code', model, verb, count(*), min(finished_at), max(finished_at),
          (array_agg(id ORDER BY id DESC))[1]
        FROM (
          SELECT * FROM jobs WHERE caller = %(caller)s AND state = 'failed' ORDER BY id DESC LIMIT %(scan)s
        ) AS jobs
        WHERE {" AND ".join([_KEPT, *where])} GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT %(limit)s
        """,
        {"caller": clean(caller), "now": now, "scan": SCAN_ROWS, "limit": MOST_GROUPS, **given},
    ).all()
    looked = conn.exec_driver_sql(
        "SELECT 1 FROM jobs WHERE caller = %(caller)s AND state = 'failed' OFFSET %(scan)s LIMIT 1",
        {"caller": clean(caller), "scan": SCAN_ROWS},
    ).one_or_none()
    return [Group(row[0] or "unknown", row[1], Verb(row[2]), *row[3:]) for row in rows], looked is None


def matching(
    conn: Connection,
    caller: str,
    dead: Dead,
    now: datetime,
    limit: int,
    *,
    killers: bool,
    after: UUID | None = None,
) -> list[Candidate]:
    """Failed jobs that match and can be tried again, the oldest first, from beyond the job `after`.

    `killers`: with those that ended workers.
    """
    where, given = _conditions(dead)
    if after is not None:
        where, given = [*where, "id > %(after)s"], {**given, "after": after}
    apart = [] if killers else ["NOT error ->> 'code' = ANY(%(killers)s::text[])"]
    condition = " AND ".join(["caller = %(caller)s", "state = 'failed'", "keep", _KEPT, *where, *apart])
    values = {"caller": clean(caller), "now": now, "killers": list(KILLERS), "limit": limit, **given}
    rows = conn.exec_driver_sql(f"SELECT id, items FROM jobs WHERE {condition} ORDER BY id LIMIT %(limit)s", values)
    return [Candidate(id_, caller, items) for id_, items in rows]


def named(conn: Connection, caller: str, ids: Sequence[UUID], now: datetime) -> list[Candidate]:
    """The jobs of these ids that can be tried again, in the order of the ids."""
    rows = conn.exec_driver_sql(
        "SELECT id, items FROM jobs "
        f"WHERE id = ANY(%(ids)s::uuid[]) AND caller = %(caller)s AND state = 'failed' AND keep AND {_KEPT}",
        {"ids": list(ids), "caller": clean(caller), "now": now},
    )
    found = {id_: Candidate(id_, caller, items) for id_, items in rows}
    return [found[id_] for id_ in dict.fromkeys(ids) if id_ in found]


def redrive(conn: Connection, caller: str, ids: Sequence[UUID], now: datetime) -> list[UUID]:
    """Queue failed jobs again; which they were. Publish them after the commit. Of two calls at once each is in one."""
    values = {"caller": clean(caller), "ids": list(ids), "now": now}
    return sorted(conn.exec_driver_sql(_REDRIVE, values).scalars())


def refusals(conn: Connection, caller: str, ids: Sequence[UUID], now: datetime) -> list[tuple[UUID, str]]:
    """Why each of these is not tried again."""
    rows = conn.exec_driver_sql(
        f"SELECT id, state, keep FROM jobs WHERE id = ANY(%(ids)s::uuid[]) AND caller = %(caller)s AND {_KEPT}",
        {"ids": list(ids), "caller": clean(caller), "now": now},
    )
    found = {id_: (State(state), keep) for id_, state, keep in rows}
    return [(id_, _why(found.get(id_))) for id_ in dict.fromkeys(ids)]


def _why(found: tuple[State, bool] | None) -> str:
    if found is None:
        return refusal(exists=False, failed=False, kept=False)
    state, kept = found
    return refusal(exists=True, failed=state is State.FAILED, kept=kept)


def _conditions(dead: Dead) -> tuple[list[str], dict[str, Any]]:
    values = {name: getattr(dead, name) for name in _FILTERS}
    given = {name: clean(value) if isinstance(value, str) else value for name, value in values.items() if value}
    return [_FILTERS[name] for name in given], given
