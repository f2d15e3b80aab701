"""Jobs that have ended, as the translations of dialects get them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from api.compat.endpoints import Ended
from api.render import queued_job
from catalog.terms import Lane, Verb
from tasks.jobs import State
from tasks.messages import Submission

ID = UUID("01a2b3c4-d5e6-7000-8000-000000000001")


def ended(
    verb: str,
    rows: list[dict[str, Any]],
    *,
    model: str = "roost/fake",
    usage: Mapping[str, int] | None = None,
    scores: Sequence[Mapping[str, Any]] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Ended:
    """A job that succeeded with these rows."""
    sent = Submission(
        id=ID, caller="default", verb=Verb(verb), model=model, revision=None, lane=Lane.INTERACTIVE, bucket="xs",
        priority=5, options=dict(options or {}), inputs=b"", lengths=[1] * len(rows), costs=[1.0] * len(rows),
        faults={}, created=1_700_000_000.0, deadline=None, retention_s=60, tags=[],
    )  # fmt: skip
    job = replace(
        queued_job(sent),
        state=State.SUCCEEDED,
        items_failed=sum("error" in row for row in rows),
        usage=usage,
        finished_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return Ended(job, rows, scores)
