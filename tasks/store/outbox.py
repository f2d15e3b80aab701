"""Webhook deliveries, written in the transaction that brings about what they tell."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection

from tasks.messages import Submission


def register(conn: Connection, jobs: Sequence[Submission]) -> None:
    """Keep whom these new jobs want to be told; those without a webhook need nothing."""


def write(conn: Connection, ids: Sequence[UUID]) -> frozenset[UUID]:
    """Deliveries for these jobs, which have just ended; the jobs that have any."""
    return frozenset()
