"""What else is written in the transaction that ends jobs: what they used, and who is to be told."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection

from tasks.store import outbox, usage


def ended(conn: Connection, ids: Sequence[UUID], source: str) -> frozenset[UUID]:
    """Call it in the transaction that made these jobs final, after their rows are; the jobs that somebody is told of.

    `source` names who counts, so that no two processes wait for one another's rows of usage. Jobs that were final
    before must not be among them: they would be counted and told twice.
    """
    if not ids:
        return frozenset()
    usage.count(conn, ids, source)
    return outbox.write(conn, ids)
