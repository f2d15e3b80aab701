"""What else is written in the transaction that ends jobs: what they used, who is to be told, what is not kept."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection

from tasks.store import outbox, spent, usage


def ended(
    conn: Connection, ids: Sequence[UUID], source: str, *, unkept: Sequence[UUID] | None = None
) -> frozenset[UUID]:
    """Call it in the transaction that made these jobs final, after their rows are; the jobs that somebody is told of.

    `source` names who counts, so that no two processes wait for one another's rows of usage. Jobs that were final
    before must not be among them: they would be counted and told twice. `unkept` are those of them whose inputs go now;
    left out, their rows say it.
    """
    if not ids:
        return frozenset()
    usage.count(conn, ids, source)
    spent.forget_inputs(conn, ids if unkept is None else unkept)
    return outbox.write(conn, ids)
