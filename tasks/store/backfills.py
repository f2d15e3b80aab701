"""Backfills and their documents as their callers make, see and stop them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from tasks.backfills.backfill import (
    CANCELLABLE,
    ENDED,
    PAUSABLE,
    Backfill,
    BackfillEnded,
    BackfillNotFound,
    DocumentState,
    Standing,
    Status,
)
from tasks.errors import IdempotencyConflict
from tasks.store.leases import is_one_of
from tasks.store.rows import clean, json_text

_NAMES = tuple(Backfill.__dataclass_fields__)
COLUMNS = ", ".join(f"backfills.{name}" for name in _NAMES)
"""What a Backfill is read from, in its order."""

_STANDING = tuple(Standing.__dataclass_fields__)


def backfill_of(row: Sequence[Any]) -> Backfill:
    """The Backfill of a row of COLUMNS."""
    values = dict(zip(_NAMES, row, strict=True))
    return Backfill(**values | {"status": Status(values["status"]), "recipe": bytes(values["recipe"])})


@dataclass(frozen=True, slots=True)
class NewBackfill:
    """What a caller asks for."""

    id: UUID
    caller: str
    name: str
    plan: Mapping[str, Any]
    recipe: bytes
    folder: str
    created_at: datetime
    idempotency_key: str | None = None
    body_hash: bytes | None = None


_CREATE = f"""
INSERT INTO backfills (id, caller, status, name, plan, recipe, folder, created_at, idempotency_key, body_hash)
VALUES (%(id)s, %(caller)s, 'validating', %(name)s, %(plan)s::jsonb, %(recipe)s, %(folder)s, %(created_at)s,
        %(idempotency_key)s, %(body_hash)s)
ON CONFLICT DO NOTHING RETURNING {COLUMNS}
"""

_SAME = f"""
SELECT body_hash, {COLUMNS} FROM backfills
WHERE id = %(id)s OR (caller = %(caller)s AND idempotency_key = %(idempotency_key)s)
"""

_GET = f"SELECT {COLUMNS} FROM backfills WHERE id = %(id)s AND caller = %(caller)s"

_PAUSE = f"""
UPDATE backfills SET status = 'paused', paused_at = now()
WHERE id = %(id)s AND caller = %(caller)s AND {is_one_of(PAUSABLE)} RETURNING {COLUMNS}
"""

_CANCEL = f"""
UPDATE backfills SET status = 'cancelling', cancelling_at = now()
WHERE id = %(id)s AND caller = %(caller)s AND {is_one_of(CANCELLABLE)} RETURNING {COLUMNS}
"""

# Speed is counted anew from here: what lay still would make it too low.
_AFRESH = """
  status = CASE WHEN in_progress_at IS NULL THEN 'validating' ELSE 'in_progress' END,
  in_progress_at = CASE WHEN in_progress_at IS NULL THEN NULL ELSE now() END,
  paused_at = NULL, progress_at = NULL
"""

_GO_ON = f"""
UPDATE backfills SET {_AFRESH}, counted_from = completed + failed
WHERE id = %(id)s AND caller = %(caller)s AND status = 'paused' RETURNING {COLUMNS}
"""

_AGAIN = f"""
UPDATE backfills SET {_AFRESH}, counted_from = completed, failed = 0, round = round + 1, error = NULL,
  finalizing_at = NULL, cancelling_at = NULL, ended_at = NULL, output_file = NULL, report_file = NULL
WHERE id = %(id)s AND caller = %(caller)s AND {is_one_of(ENDED)}
  AND (in_progress_at IS NULL OR EXISTS (
    SELECT 1 FROM backfill_documents WHERE backfill = backfills.id AND state IN ('waiting', 'failed')
  )) RETURNING {COLUMNS}
"""

# Those that `retry` has left.
_RETRY = """
UPDATE backfill_documents SET state = 'waiting', error = NULL WHERE backfill = %(id)s AND state = 'failed'
"""

_HELD_ENDED = f"""
SELECT 1 FROM backfills WHERE id = %(id)s AND caller = %(caller)s AND {is_one_of(ENDED)} FOR NO KEY UPDATE
"""

_RETRY_SOME = """
WITH next AS MATERIALIZED (
  SELECT number FROM backfill_documents WHERE backfill = %(id)s AND number > %(after)s AND state = 'failed'
  ORDER BY number LIMIT %(limit)s
), retried AS (
  UPDATE backfill_documents d SET state = 'waiting', error = NULL FROM next
  WHERE d.backfill = %(id)s AND d.number = next.number
) SELECT max(number) FROM next
"""

_DOCUMENTS = f"""
SELECT {", ".join(_STANDING)} FROM backfill_documents
WHERE backfill = %(id)s AND number > %(after)s AND (%(state)s::text IS NULL OR state = %(state)s)
ORDER BY number LIMIT %(limit)s
"""

_KEPT = "SELECT output FROM backfill_documents WHERE output = ANY(%(keys)s)"

_FORGET = """
DELETE FROM backfills WHERE id IN (
  SELECT id FROM backfills
  WHERE ended_at <= %(before)s
    AND NOT EXISTS (SELECT 1 FROM files WHERE files.id IN (backfills.output_file, backfills.report_file))
  ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
"""


def create(conn: Connection, new: NewBackfill) -> tuple[Backfill, bool]:
    """A backfill to be validated, or the one that its key leads to already, and whether it is that.

    Raises IdempotencyConflict when that one was asked for otherwise.
    """
    given = {name: getattr(new, name) for name in NewBackfill.__dataclass_fields__}
    row = conn.exec_driver_sql(_CREATE, given | {"plan": json_text(new.plan)}).one_or_none()
    if row is not None:
        return backfill_of(row), False
    body_hash, *same = conn.exec_driver_sql(_SAME, given).one()
    found = backfill_of(same)
    if found.id != new.id and bytes(body_hash or b"") != new.body_hash:
        raise IdempotencyConflict(param="Idempotency-Key")
    return found, found.id != new.id


def get(conn: Connection, id_: UUID | None, caller: str) -> Backfill:
    """A backfill of a caller. Raises BackfillNotFound; None is the id of none."""
    return _moved(conn, _GET, id_, caller) or _none()


def page(conn: Connection, caller: str, *, name: str | None, after: UUID | None, limit: int) -> list[Backfill]:
    """At most `limit` backfills of a caller, newest first, from beyond the one of the id `after`."""
    where = ["caller = %(caller)s"]
    where += ["name = %(name)s"] if name is not None else []
    where += ["id < %(after)s"] if after is not None else []
    rows = conn.exec_driver_sql(
        f"SELECT {COLUMNS} FROM backfills WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT %(limit)s",
        {"caller": caller, "name": name and clean(name), "after": after, "limit": limit},
    )
    return [backfill_of(row) for row in rows]


def pause(conn: Connection, id_: UUID | None, caller: str) -> Backfill:
    """Begin no more documents. Pausing twice changes nothing. Raises BackfillNotFound, BackfillEnded."""
    found = _moved(conn, _PAUSE, id_, caller) or get(conn, id_, caller)
    if found.status is not Status.PAUSED:
        raise BackfillEnded(f"The backfill is {found.status.value}; only one that is {_or(PAUSABLE)} can be paused.")
    return found


def cancel(conn: Connection, id_: UUID | None, caller: str) -> Backfill:
    """Ask for its end. Cancelling twice changes nothing. Raises BackfillNotFound, BackfillEnded."""
    found = _moved(conn, _CANCEL, id_, caller) or get(conn, id_, caller)
    if found.status not in (Status.CANCELLING, Status.CANCELLED):
        said = f"The backfill is {found.status.value}; only one that is {_or(CANCELLABLE)} can be cancelled."
        raise BackfillEnded(said)
    return found


def retry(conn: Connection, id_: UUID | None, caller: str, after: int, limit: int) -> int | None:
    """Have some failed documents wait again, of a backfill that has ended; the last number, or None.

    Call it before `resume`, again and again: a statement may not take as long as a million of them do.
    """
    given = {"id": id_, "caller": caller, "after": after, "limit": limit}
    if conn.exec_driver_sql(_HELD_ENDED, given).one_or_none() is None:
        return None
    last: int | None = conn.exec_driver_sql(_RETRY_SOME, given).scalar_one()
    return last


def resume(conn: Connection, id_: UUID | None, caller: str) -> Backfill:
    """Go on: with what waits, and of one that has ended with what failed, too. One that moves is given as it is.

    Raises BackfillNotFound, or BackfillEnded when there is nothing left to do.
    """
    found = _moved(conn, _GO_ON, id_, caller)
    if found is None and (found := _moved(conn, _AGAIN, id_, caller)) is not None:
        conn.exec_driver_sql(_RETRY, {"id": found.id}).close()
    found = found or get(conn, id_, caller)
    if found.status in ENDED:
        raise BackfillEnded(f"The backfill is {found.status.value}, and nothing of it is left to do.")
    if found.status is Status.CANCELLING:
        raise BackfillEnded("The backfill is being cancelled; resume it once it is cancelled.")
    return found


def documents(conn: Connection, id_: UUID, *, state: DocumentState | None, after: int, limit: int) -> list[Standing]:
    """At most `limit` documents in their order, from beyond the one of the number `after`."""
    given = {"id": id_, "state": state and state.value, "after": after, "limit": limit}
    found = []
    for row in conn.exec_driver_sql(_DOCUMENTS, given):
        values = dict(zip(_STANDING, row, strict=True))
        found.append(Standing(**values | {"state": DocumentState(values["state"])}))
    return found


def kept(conn: Connection, keys: Sequence[str]) -> set[str]:
    """Which of these keys are the rows of documents."""
    return {str(row[0]) for row in conn.exec_driver_sql(_KEPT, {"keys": list(keys)})}


def forget(conn: Connection, before: datetime, limit: int) -> int:
    """Delete backfills that ended by then and whose files are gone, documents and all; how many."""
    return conn.exec_driver_sql(_FORGET, {"before": before, "limit": limit}).rowcount


def _moved(conn: Connection, sql: str, id_: UUID | None, caller: str) -> Backfill | None:
    row = None if id_ is None else conn.exec_driver_sql(sql, {"id": id_, "caller": caller}).one_or_none()
    return None if row is None else backfill_of(row)


def _none() -> Backfill:
    raise BackfillNotFound


def _or(states: Sequence[Status]) -> str:
    return " or ".join(state.value for state in states)
