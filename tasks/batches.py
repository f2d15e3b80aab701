"""Batches: their states, the window they must be done in, and the ids of their jobs. Pure; docs/batches.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Any
from uuid import UUID

from tasks.errors import InvalidRequest, TaskError

MOST_WINDOW = timedelta(days=14)
STALLED_AFTER = timedelta(minutes=5)
"""An open batch of which no line has ended for so long is told to be stalled."""

PREFIX = "batch_"
"""Begins the id of a batch as callers see it."""

FOLDER = "batches"
"""Where their parts are in the blob store, those of each batch in a folder of its own."""

TAG = "batch:"
"""Begins the tag of the jobs of a batch; its id follows."""


class BatchNotFound(TaskError):
    """No such batch."""

    code = "batch_not_found"


class Status(StrEnum):
    """Where a batch stands; the last four are final."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


OPEN = (Status.VALIDATING, Status.IN_PROGRESS, Status.FINALIZING, Status.CANCELLING)
CANCELLABLE = (Status.VALIDATING, Status.IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as its row tells it. `fed` counts the parts whose lines may have jobs; times are UTC."""

    id: UUID
    caller: str
    status: Status
    endpoint: str
    completion_window: str
    input_file: UUID
    labels: Mapping[str, str] | None
    model: str | None
    output_expires_s: int
    folder: str
    created_at: datetime
    expires_at: datetime
    in_progress_at: datetime | None
    finalizing_at: datetime | None
    cancelling_at: datetime | None
    ended_at: datetime | None
    progress_at: datetime | None
    total: int
    completed: int
    failed: int
    fed: int
    input_tokens: int
    output_tokens: int
    errors: Sequence[Mapping[str, Any]] | None
    output_file: UUID | None
    error_file: UUID | None

    def stalled(self, now: datetime) -> bool:
        """Whether it should move and does not: no line has ended for long."""
        if self.status not in OPEN:
            return False
        since = max(moment for moment in (self.created_at, self.in_progress_at, self.progress_at) if moment)
        return now - since > STALLED_AFTER


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an input file that is done as a whole: some lines, and the bytes that they take.

    `first_line` counts all lines of the file from 1, and `lines` those that are not blank.
    """

    part: int
    first_line: int
    lines: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Tally:
    """How lines ended: how many, and what they read and wrote."""

    completed: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @classmethod
    def of(cls, *, succeeded: bool, usage: Mapping[str, int] | None) -> Tally:
        """One line, by the usage of its job."""
        found = usage or {}
        read = found.get("prompt_tokens", found.get("tokens", 0))
        return cls(int(succeeded), int(not succeeded), read, found.get("completion_tokens", 0))

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.completed + other.completed,
            self.failed + other.failed,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
        )


def final_status(status: Status, *, late: bool, succeeded: int) -> Status:
    """How a batch ends whose lines have all ended. `late`: some could not be done within its window.

    One of which no line succeeded has failed, whatever clients may think of the word completed.
    """
    if status is Status.CANCELLING:
        return Status.CANCELLED
    if late:
        return Status.EXPIRED
    return Status.COMPLETED if succeeded else Status.FAILED


def window(text: str) -> timedelta:
    """The completion window of `24h`, `90m` or `3d`. Raises InvalidRequest."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text)
    unit = {"m": "minutes", "h": "hours", "d": "days"}
    asked = timedelta(**{unit[found[2]]: int(found[1])}) if found else None
    if asked is None or asked > MOST_WINDOW:
        raise InvalidRequest(
            f"'completion_window' must be a number and m, h or d, as in '24h', and at most {MOST_WINDOW.days}d.",
            param="completion_window",
        )
    return asked


def line_job(batch: UUID, line: int) -> UUID:
    """The id of a line's job: always the same, so that a line that is fed again finds its job.

    A UUIDv7 of the batch's own time, in the order of the lines.
    """
    noise = int.from_bytes(blake2b(batch.bytes, digest_size=6).digest()) & (2**42 - 1)
    stamp = batch.int >> 80
    return UUID(int=stamp << 80 | 0x7 << 76 | (line >> 20 & 0xFFF) << 64 | 0b10 << 62 | (line & 0xFFFFF) << 42 | noise)
