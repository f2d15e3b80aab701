"""The remote control command that carries a cancel to the worker that holds the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery.worker.control import control_command
from celery.worker.state import revoked


@control_command(variadic="ids", signature="[id1 [id2 [... [idN]]]]")  # type: ignore[untyped-decorator]
def cancel_jobs(state: Any, ids: Sequence[str], **_: Any) -> dict[str, int]:
    """Drop these jobs, here or in the engine child. The revoked set stops those that a stock transport delivers yet."""
    parent = getattr(state.consumer.controller, "engine", None)
    revoked.update(list(ids))
    return {"ok": parent.cancel(ids) if parent is not None else 0}
