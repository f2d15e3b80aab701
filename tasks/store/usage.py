"""What callers used, by day and model."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection


def count(conn: Connection, ids: Sequence[UUID], source: str) -> None:
    """Add what these jobs used, which have just ended."""
