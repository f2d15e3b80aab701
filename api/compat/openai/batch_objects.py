"""Batches as OpenAI's clients send and read them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from api.compat.batchable import ENDPOINTS
from api.compat.openai.files import PREFIX as FILE
from api.schemas import Reply
from tasks.batches import PREFIX, Batch, Status
from tasks.files import LEAST_KEPT_S, MOST_KEPT_S, shown_id
from tasks.items import Strict, fault


def _no_nul(value: str) -> str:
    """The database cannot hold it."""
    if "\0" in value:
        raise fault("must not hold the character U+0000")
    return value


_Name = Annotated[str, Field(max_length=64), AfterValidator(_no_nul)]
_Value = Annotated[str, Field(max_length=512), AfterValidator(_no_nul)]


class ExpiresAfter(Strict):
    """How long the files that a batch writes are kept."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=LEAST_KEPT_S, le=MOST_KEPT_S)]


class BatchRequest(Strict):
    """A batch to work through."""

    input_file_id: Annotated[str, Field(description="A file of the purpose `batch`")]
    endpoint: Annotated[str, Field(description=f"What its lines ask for: {', '.join(sorted(ENDPOINTS))}")]
    completion_window: Annotated[str, Field(description="Such as `24h`; a number and m, h or d, at most 14d")] = "24h"
    metadata: Annotated[dict[_Name, _Value] | None, Field(max_length=16, description="Kept and told")] = None
    output_expires_after: ExpiresAfter | None = None


class BatchFault(Reply):
    """What is wrong with the input file."""

    code: str
    line: Annotated[int | None, Field(description="The number of the line, from 1")]
    message: str
    param: str | None


class BatchFaults(Reply):
    """All that is told of them."""

    object: Literal["list"]
    data: list[BatchFault]


class Counts(Reply):
    """Lines: all, those with a reply in the output file, and those in the error file."""

    total: int
    completed: int
    failed: int


class CachedTokens(Reply):
    """Nothing is counted apart here."""

    cached_tokens: int


class ReasoningTokens(Reply):
    """Nothing is counted apart here."""

    reasoning_tokens: int


class BatchUsage(Reply):
    """Tokens of all lines that are done."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class BatchObject(Reply):
    """A batch. Times are Unix seconds."""

    id: str
    object: Literal["batch"]
    endpoint: str
    model: str | None
    errors: BatchFaults | None
    input_file_id: str
    completion_window: str
    status: Status
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: Counts
    usage: BatchUsage
    metadata: dict[str, str] | None
    progress_at: Annotated[int | None, Field(description="An extra: when a line last ended")]
    stalled: Annotated[bool, Field(description="An extra: it is open, and no line has ended for five minutes")]
    paused_until: Annotated[
        int | None, Field(description="An extra: when it goes on, if its tenant has used what it may in a day")
    ]


class BatchList(Reply):
    """Some batches; the next page begins after `last_id`."""

    object: Literal["list"]
    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


def batch_object(batch: Batch, now: datetime, resumes_at: datetime | None = None) -> dict[str, Any]:
    """A batch as OpenAI's clients know it. `resumes_at` is when its tenant may go on, if it may not now."""
    paused = resumes_at if batch.status in (Status.VALIDATING, Status.IN_PROGRESS) else None

    def seconds(moment: datetime | None) -> int | None:
        return None if moment is None else int(moment.timestamp())

    def ended(status: Status) -> int | None:
        return seconds(batch.ended_at) if batch.status is status else None

    read, made = batch.input_tokens, batch.output_tokens
    return {
        "id": shown_id(PREFIX, batch.id),
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": None if batch.errors is None else {"object": "list", "data": batch.errors},
        "input_file_id": shown_id(FILE, batch.input_file),
        "completion_window": batch.completion_window,
        "status": batch.status.value,
        "output_file_id": batch.output_file and shown_id(FILE, batch.output_file),
        "error_file_id": batch.error_file and shown_id(FILE, batch.error_file),
        "created_at": seconds(batch.created_at),
        "in_progress_at": seconds(batch.in_progress_at),
        "expires_at": seconds(batch.expires_at),
        "finalizing_at": seconds(batch.finalizing_at),
        "completed_at": ended(Status.COMPLETED),
        "failed_at": ended(Status.FAILED),
        "expired_at": ended(Status.EXPIRED),
        "cancelling_at": seconds(batch.cancelling_at),
        "cancelled_at": ended(Status.CANCELLED),
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + made,
        },
        "metadata": batch.labels,
        "progress_at": seconds(batch.progress_at),
        "stalled": paused is None and batch.stalled(now),
        "paused_until": seconds(paused),
    }
