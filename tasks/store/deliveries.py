"""Deliveries: which are due, what came of each attempt, and what their owner sees of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Connection

from tasks.store.endpoints import DROP, own_secret
from tasks.store.pages import first_of
from tasks.store.rows import clean, columns, unnest
from tasks.webhooks.endpoint import MOST_ATTEMPTS, Attempt, Delivery, DeliveryNotFound, Due
from tasks.webhooks.schedule import Health, Next, State, Tried, health

_NAMES = tuple(Delivery.__dataclass_fields__)
_COLUMNS = ", ".join(f"deliveries.{name}" for name in _NAMES)

# The targets one after the other by the index: what waits for a thousand dead receivers is never read.
_TARGETS = """
WITH RECURSIVE targets (target) AS (
  (SELECT target FROM deliveries WHERE state = 'pending' ORDER BY target LIMIT 1)
  UNION ALL
  SELECT (SELECT d.target FROM deliveries AS d WHERE d.state = 'pending' AND d.target > t.target
          ORDER BY d.target LIMIT 1)
  FROM targets AS t WHERE t.target IS NOT NULL
)
"""

_ENABLED = """
NOT EXISTS (
  SELECT 1 FROM webhook_endpoints AS e
  WHERE e.id = CASE WHEN starts_with(t.target, 'endpoint ') THEN substr(t.target, 10)::uuid END
    AND e.disabled_at IS NOT NULL
)
""".strip()

# Of each target no more than it has room for, so that a healthy one is found whatever waits before it. What goes to a
# target that fails, or would not be the only attempt to it, is `more`, and comes after all others. Callers take turns,
# and none has more than its share: it may name as many targets as it likes. What is looked up by a target is a key of
# an object and no join: joins by hash are off, and thousands of targets may fail.
_CLAIM = f"""
{_TARGETS.strip()}, waiting AS (
  SELECT d.id, d.next_at, d.more, coalesce((%(held)s::jsonb ->> d.caller)::int, 0)
    + row_number() OVER (PARTITION BY d.caller ORDER BY d.more, d.next_at) AS turn
  FROM (SELECT target, (%(room)s::jsonb ->> target)::int AS room FROM targets) AS t
  CROSS JOIN LATERAL (
    SELECT id, next_at, caller, t.room IS NOT NULL OR row_number() OVER (ORDER BY next_at) > 1 AS more FROM deliveries
    WHERE state = 'pending' AND target = t.target AND next_at <= %(now)s
    ORDER BY next_at LIMIT coalesce(t.room, %(each)s)
  ) AS d
  WHERE t.target IS NOT NULL AND {_ENABLED}
), due AS (
  SELECT id, next_at, more, turn, row_number() OVER (PARTITION BY more ORDER BY turn, next_at) AS place
  FROM waiting WHERE turn <= CASE WHEN more THEN %(share_of_more)s ELSE %(share)s END
), chosen AS (
  SELECT id FROM due WHERE NOT more OR place <= %(more)s - (SELECT count(*) FROM due WHERE NOT more)
  ORDER BY more, turn, next_at LIMIT %(most)s
), ours AS MATERIALIZED (
  SELECT id FROM deliveries WHERE id IN (SELECT id FROM chosen) AND state = 'pending' AND next_at <= %(now)s
  ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET next_at = %(until)s, attempts = deliveries.attempts + 1,
  tries = deliveries.tries + 1
FROM ours, deliveries AS d LEFT JOIN webhook_endpoints AS e ON e.id = d.endpoint
WHERE deliveries.id = ours.id AND d.id = ours.id
RETURNING deliveries.id, deliveries.caller, deliveries.endpoint, deliveries.target, coalesce(deliveries.url, e.url),
  deliveries.secret, e.secret, CASE WHEN e.old_secret_until > %(now)s THEN e.old_secret END, deliveries.inline,
  deliveries.type, deliveries.object, deliveries.data, deliveries.created_at, deliveries.attempts, deliveries.tries
"""

_NEXT = f"""
{_TARGETS.strip()}
SELECT min(d.next_at) FROM targets AS t CROSS JOIN LATERAL (
  SELECT next_at FROM deliveries WHERE state = 'pending' AND target = t.target AND next_at > %(now)s
  ORDER BY next_at LIMIT 1
) AS d WHERE {_ENABLED}
"""

_TRIED = columns(
    id="uuid", number="int4", tries="int4", at="timestamptz", duration_ms="int4", status="int4", error="text",
    state="text", next_at="timestamptz", ended_at="timestamptz",
)  # fmt: skip
_NOTE = f"""
INSERT INTO delivery_attempts (delivery, number, at, duration_ms, status, error)
SELECT t.id, t.number, t.at, t.duration_ms, t.status, t.error FROM {unnest(_TRIED)}
WHERE EXISTS (SELECT 1 FROM deliveries WHERE deliveries.id = t.id) ON CONFLICT DO NOTHING
"""
# In the order of ids, as `redeliver` and `claim` lock them. What was redelivered while an attempt was under way has a
# new series, of which that attempt decides nothing.
_AFTER = f"""
WITH ours AS MATERIALIZED (
  SELECT d.id, t.state, t.next_at, t.ended_at FROM {unnest(_TRIED)} JOIN deliveries AS d ON d.id = t.id
  WHERE d.state = 'pending' AND d.attempts = t.number AND d.tries = t.tries ORDER BY d.id FOR NO KEY UPDATE OF d
)
UPDATE deliveries SET state = ours.state, next_at = ours.next_at, ended_at = ours.ended_at
FROM ours WHERE deliveries.id = ours.id
"""
_HEALTH = """
SELECT id, url, failing_since FROM webhook_endpoints WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""
_DOES = columns(id="uuid", since="timestamptz", now="timestamptz", why="text")
_HEALTHS = f"""
UPDATE webhook_endpoints SET failing_since = t.since,
  disabled_at = CASE WHEN t.why IS NULL THEN disabled_at ELSE coalesce(disabled_at, t.now) END,
  disabled_why = CASE WHEN disabled_at IS NULL THEN t.why ELSE disabled_why END
FROM {unnest(_DOES)} WHERE webhook_endpoints.id = t.id
"""

_SEEN = """
NOT EXISTS (SELECT 1 FROM webhook_endpoints AS e WHERE e.id = deliveries.endpoint AND e.deleted_at IS NOT NULL)
""".strip()
_MINE = f"id = %(id)s AND caller = %(caller)s AND {_SEEN}"
_GET = f"SELECT {_COLUMNS} FROM deliveries WHERE {_MINE}"
_ATTEMPTS = f"""
SELECT number, at, duration_ms, status, error FROM delivery_attempts WHERE delivery = %(id)s
ORDER BY number DESC LIMIT {MOST_ATTEMPTS}
"""
_AGAIN = "state = 'pending', tries = 0, next_at = %(now)s, ended_at = NULL"
_REDELIVER = f"UPDATE deliveries SET {_AGAIN} WHERE {_MINE} RETURNING {_COLUMNS}"
_REDELIVER_RANGE = f"""
UPDATE deliveries SET {_AGAIN} WHERE id IN (
  SELECT id FROM deliveries
  WHERE endpoint = %(endpoint)s AND caller = %(caller)s AND state = ANY(%(states)s::text[])
    AND created_at >= %(since)s AND created_at < %(until)s AND id >= %(first)s
    AND (%(after)s::uuid IS NULL OR id > %(after)s)
  ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE
)
RETURNING id
"""
_FORGET = """
DELETE FROM deliveries WHERE id IN (
  SELECT id FROM deliveries WHERE ended_at <= %(before)s ORDER BY ended_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
"""
_DROP = """
UPDATE deliveries SET state = 'dropped', next_at = NULL, ended_at = %(now)s WHERE state = 'pending' AND id IN (
  SELECT d.id FROM webhook_endpoints AS e CROSS JOIN LATERAL (
    SELECT id FROM deliveries WHERE state = 'pending' AND target = 'endpoint ' || e.id LIMIT %(limit)s
  ) AS d WHERE e.disabled_at IS NOT NULL LIMIT %(limit)s
)
"""
_REMOVE = """
DELETE FROM deliveries WHERE id IN (
  SELECT d.id FROM webhook_endpoints AS e CROSS JOIN LATERAL (
    SELECT id FROM deliveries WHERE endpoint = e.id LIMIT %(limit)s
  ) AS d WHERE e.deleted_at IS NOT NULL LIMIT %(limit)s
)
"""
_REMOVE_ENDPOINTS = """
DELETE FROM webhook_endpoints AS e
WHERE deleted_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM deliveries WHERE endpoint = e.id)
"""
_STANDING = "SELECT state, count(*), min(next_at) FROM deliveries WHERE state = 'pending' GROUP BY 1"


@dataclass(frozen=True, slots=True)
class Filters:
    """Which deliveries to list; None takes all."""

    endpoint: UUID | None = None
    state: State | None = None
    type: str | None = None
    object: UUID | None = None


def claim(
    conn: Connection,
    now: datetime,
    lease: timedelta,
    *,
    most: int,
    more: int,
    each: int,
    room: Mapping[str, int],
    share: int,
    share_of_more: int,
    held: Mapping[str, int],
) -> list[Due]:
    """Take at most `most` deliveries that are due, of each target no more than `each`.

    A caller has no more than `share` with what `held` says that it has under way. `room` has the number for targets
    that have attempts under way, or fail. What goes to them, and what would not be the only attempt to its target, is
    taken only as long as all that is taken is less than `more`. Each that is taken counts an attempt by that, and is
    taken again by whoever looks after the lease if nothing comes of it.
    """
    given = {
        "now": now,
        "until": now + lease,
        "most": most,
        "each": each,
        "more": more,
        "room": orjson.dumps(dict(room)).decode(),
        "share": share,
        "share_of_more": share_of_more,
        "held": orjson.dumps(dict(held)).decode(),
    }
    return [_due(conn, row) for row in conn.exec_driver_sql(_CLAIM, given).all()]


def next_due(conn: Connection, now: datetime) -> datetime | None:
    """When the next delivery is due after `now`; None if nothing is. What is due already was taken, or has no room."""
    found: datetime | None = conn.exec_driver_sql(_NEXT, {"now": now}).scalar_one()
    return found


def record(conn: Connection, made: Sequence[tuple[Due, Tried, Next]]) -> None:
    """Note attempts, what becomes of their deliveries, and how their endpoints do.

    One whose delivery was taken over or redelivered meanwhile changes nothing but the list of attempts, and the health
    of its endpoint; and not that either, if it went to a URL that the endpoint has no more.
    """
    rows = [
        {
            "id": due.id,
            "number": due.attempts,
            "tries": due.tries,
            "at": tried.at,
            "duration_ms": tried.duration_ms,
            "status": tried.status,
            "error": tried.error,
            "state": then.state.value,
            "next_at": then.at,
            "ended_at": None if then.state is State.PENDING else tried.at,
        }
        for due, tried, then in made
    ]
    given = {column.name: [row[column.name] for row in rows] for column in _TRIED}
    to = [(due.endpoint, due.url, tried) for due, tried, _ in made if due.endpoint is not None]
    # Endpoints are locked before deliveries, as by `endpoints.disable`.
    locked = _locked(conn, sorted({id_ for id_, *_ in to})) if to else {}
    told = [(id_, tried) for id_, url, tried in to if id_ in locked and locked[id_][0] == url]
    before = {id_: since for id_, (_, since) in locked.items()}
    conn.exec_driver_sql(_NOTE, given).close()
    conn.exec_driver_sql(_AFTER, given).close()
    _note_health(conn, before, told)


def _locked(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, tuple[str, datetime | None]]:
    """The URLs of these endpoints, and since when they have had nothing but failures; nobody else's until then."""
    return {id_: (url, since) for id_, url, since in conn.exec_driver_sql(_HEALTH, {"ids": list(ids)})}


def _note_health(conn: Connection, before: Mapping[UUID, datetime | None], tried: Sequence[tuple[UUID, Tried]]) -> None:
    """How endpoints do after these attempts, in their order; those that change nothing are not written."""
    does = {id_: Health(since) for id_, since in before.items()}
    last = dict(tried)
    for id_, what in tried:
        if does[id_].disable is None:
            does[id_] = health(what, does[id_].failing_since)
    changed = [id_ for id_ in before if does[id_] != Health(before[id_])]
    if changed:
        given = {
            "id": changed,
            "since": [does[id_].failing_since for id_ in changed],
            "now": [last[id_].at for id_ in changed],
            "why": [does[id_].disable for id_ in changed],
        }
        conn.exec_driver_sql(_HEALTHS, given).close()
    for id_ in changed:
        if does[id_].disable is not None:
            conn.exec_driver_sql(DROP, {"id": id_, "now": last[id_].at}).close()


def get(conn: Connection, id_: UUID | None, caller: str) -> Delivery:
    """A delivery of a caller. Raises DeliveryNotFound; None is the id of none."""
    row = None
    if id_ is not None:
        row = conn.exec_driver_sql(_GET, {"id": id_, "caller": clean(caller)}).one_or_none()
    if row is None:
        raise DeliveryNotFound
    return _of(row)


def attempts(conn: Connection, id_: UUID) -> list[Attempt]:
    """The newest attempts of a delivery, in order: whoever redelivers it again and again has it make any number."""
    return [Attempt(*row) for row in conn.exec_driver_sql(_ATTEMPTS, {"id": id_})][::-1]


def page(conn: Connection, caller: str, filters: Filters, *, after: UUID | None, limit: int) -> list[Delivery]:
    """At most `limit` deliveries of a caller, newest first, from beyond the delivery `after`."""
    given = {
        "caller": clean(caller),
        "endpoint": filters.endpoint,
        "type": filters.type,
        "object": filters.object,
        "after": after,
        "limit": limit,
    }
    wanted = [f"{name} = %({name})s" for name in ("endpoint", "type", "object") if given[name] is not None]
    # In the words of the index of those that failed, so that it serves whatever the plan.
    wanted += [f"state = '{filters.state.value}'"] if filters.state is not None else []
    beyond = ["id < %(after)s"] if after is not None else []
    where = " AND ".join(["caller = %(caller)s", *wanted, *beyond, _SEEN])
    rows = conn.exec_driver_sql(
        f"SELECT {_COLUMNS} FROM deliveries WHERE {where} ORDER BY id DESC LIMIT %(limit)s", given
    )
    return [_of(row) for row in rows]


def redeliver(conn: Connection, id_: UUID | None, caller: str, now: datetime) -> Delivery:
    """Begin a new series of attempts, under the same id. Raises DeliveryNotFound."""
    row = None
    if id_ is not None:
        row = conn.exec_driver_sql(_REDELIVER, {"id": id_, "caller": clean(caller), "now": now}).one_or_none()
    if row is None:
        raise DeliveryNotFound
    return _of(row)


def redeliver_range(
    conn: Connection,
    endpoint: UUID,
    caller: str,
    *,
    since: datetime,
    until: datetime,
    states: Sequence[State],
    now: datetime,
    limit: int,
    after: UUID | None = None,
) -> list[UUID]:
    """The same for deliveries of an endpoint that were created in this time and are in one of these states; their ids.

    At most `limit` at once, the oldest first: call it again from beyond the last one while it gives as many.
    """
    given = {
        "endpoint": endpoint,
        "caller": clean(caller),
        "since": since,
        "first": first_of(since),  # by the index, past all that is older
        "until": until,
        "states": [state.value for state in states],
        "now": now,
        "limit": limit,
        "after": after,
    }
    return sorted(conn.exec_driver_sql(_REDELIVER_RANGE, given).scalars())


def forget(conn: Connection, before: datetime, limit: int) -> int:
    """Delete deliveries that ended by then, with their attempts; how many."""
    return conn.exec_driver_sql(_FORGET, {"before": before, "limit": limit}).rowcount


def drop(conn: Connection, now: datetime, limit: int) -> int:
    """Drop deliveries that wait for endpoints which are disabled; how many."""
    return conn.exec_driver_sql(_DROP, {"now": now, "limit": limit}).rowcount


def remove(conn: Connection, limit: int) -> int:
    """Delete deliveries of deleted endpoints, with their attempts, and endpoints that have none left; how many."""
    count = conn.exec_driver_sql(_REMOVE, {"limit": limit}).rowcount
    if count == 0:
        conn.exec_driver_sql(_REMOVE_ENDPOINTS).close()
    return count


def standing(conn: Connection) -> tuple[int, datetime | None]:
    """How many deliveries are pending, and when the oldest of them was or is due."""
    row = conn.exec_driver_sql(_STANDING).one_or_none()
    return (0, None) if row is None else (int(row[1]), row[2])


def _due(conn: Connection, row: Sequence[Any]) -> Due:
    id_, caller, endpoint, target, url, own, current, old, inline, kind, object_, data, created_at, number, tries = row
    if own is not None:
        keys = [own]
    elif endpoint is not None:
        keys = [key for key in (current, old) if key is not None]
    else:
        keys = [own_secret(conn, caller)]
    return Due(
        id=id_,
        caller=caller,
        endpoint=endpoint,
        target=target,
        url=url,
        keys=tuple(bytes(key) for key in keys),
        inline=inline,
        type=kind,
        object=object_,
        data=data,
        created_at=created_at,
        attempts=number,
        tries=tries,
    )


def _of(row: Sequence[Any]) -> Delivery:
    values = dict(zip(_NAMES, row, strict=True))
    return Delivery(**values | {"state": State(values["state"])})
