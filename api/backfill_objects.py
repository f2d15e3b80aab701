"""Backfills and their documents as callers see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from api.schemas import Reply
from tasks.backfills.backfill import PREFIX, URL, Backfill, DocumentState, Standing, Status
from tasks.files import SHOWN, shown_id


class BackfillFault(Reply):
    """Why a backfill failed, or a line of its manifest is wrong."""

    code: str
    line: Annotated[int | None, Field(description="The number of the line, from 1")]
    message: str
    param: str | None


class DocumentCounts(Reply):
    """Documents: all, those done, those that failed, and those that an earlier backfill had done."""

    total: int
    completed: int
    failed: int
    skipped: int


class BackfillObject(Reply):
    """A backfill. `output_file_id` and `report_file_id` are read with `GET /v1/files/{id}/content`."""

    id: str
    object: Literal["backfill"]
    status: Status
    name: str | None
    source: dict[str, Any]
    steps: list[dict[str, Any]]
    output: dict[str, Any]
    counts: DocumentCounts
    rows: Annotated[int, Field(description="Of the output, so far")]
    per_second: Annotated[float | None, Field(description="Documents a second since it was last taken up")]
    seconds_left: Annotated[float | None, Field(description="What is left, at that speed")]
    errors: list[BackfillFault] | None
    output_file_id: str | None
    report_file_id: str | None
    created_at: datetime
    in_progress_at: datetime | None
    paused_at: datetime | None
    finalizing_at: datetime | None
    cancelling_at: datetime | None
    ended_at: datetime | None
    progress_at: Annotated[datetime | None, Field(description="When a document last ended")]


class BackfillList(Reply):
    """Some backfills, newest first; the next page begins after `last_id`."""

    object: Literal["list"]
    data: list[BackfillObject]
    last_id: str | None
    has_more: bool


class DocumentError(Reply):
    """Why a document failed, and in which step."""

    step: str
    place: Annotated[int, Field(description="Of the step, from 0")]
    code: str
    message: str


class DocumentObject(Reply):
    """A document of a backfill."""

    object: Literal["backfill.document"]
    number: int
    document: Annotated[str, Field(description="What its rows call it")]
    source: str
    size: int
    state: DocumentState
    rows: int
    error: DocumentError | None


class DocumentList(Reply):
    """Some documents in their order; the next page begins after `last_number`."""

    object: Literal["list"]
    data: list[DocumentObject]
    last_number: int | None
    has_more: bool


def backfill_object(backfill: Backfill) -> dict[str, Any]:
    """A backfill for its caller."""
    plan = backfill.plan
    speed, left = backfill.per_second, backfill.seconds_left
    return {
        "id": shown_id(PREFIX, backfill.id),
        "object": "backfill",
        "status": backfill.status.value,
        "name": plan.get("name"),
        "source": {name: value for name, value in plan["source"].items() if value is not None and name != "files"},
        "steps": [{name: value for name, value in step.items() if value is not None} for step in plan["steps"]],
        "output": plan["output"],
        "counts": {
            "total": backfill.total,
            "completed": backfill.completed,
            "failed": backfill.failed,
            "skipped": backfill.skipped,
        },
        "rows": backfill.rows,
        "per_second": None if speed is None else round(speed, 3),
        "seconds_left": None if left is None else round(left, 1),
        "errors": None if backfill.error is None else list(backfill.error),
        "output_file_id": backfill.output_file and shown_id(SHOWN, backfill.output_file),
        "report_file_id": backfill.report_file and shown_id(SHOWN, backfill.report_file),
        "created_at": backfill.created_at,
        "in_progress_at": backfill.in_progress_at,
        "paused_at": backfill.paused_at,
        "finalizing_at": backfill.finalizing_at,
        "cancelling_at": backfill.cancelling_at,
        "ended_at": backfill.ended_at,
        "progress_at": backfill.progress_at,
    }


def document_object(one: Standing) -> dict[str, Any]:
    """A document for its caller."""
    return {
        "object": "backfill.document",
        "number": one.number,
        "document": one.name,
        "source": one.source.removeprefix(URL),
        "size": one.size,
        "state": one.state.value,
        "rows": one.rows,
        "error": one.error,
    }
