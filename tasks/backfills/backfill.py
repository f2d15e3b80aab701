"""Backfills and their documents: their states, how fast they go, and the ids of their jobs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Any
from uuid import UUID

from tasks.errors import TaskError

PREFIX = "backfill_"
"""Begins the id of a backfill as callers see it."""

FOLDER = "backfills"
"""Where the rows of documents are in the blob store, those of each backfill in a folder of its own."""

URL = "url:"
"""Begins the source of a document that is fetched; its URL follows."""

TAG = "backfill:"
"""Begins the tag of the jobs of a backfill; its id follows."""


class BackfillNotFound(TaskError):
    """No such backfill."""

    code = "backfill_not_found"


class BackfillEnded(TaskError):
    """The backfill is not in the state that this needs."""

    code = "backfill_ended"


class Status(StrEnum):
    """Where a backfill stands."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    PAUSED = "paused"
    FINALIZING = "finalizing"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


WORKED_ON = (Status.VALIDATING, Status.IN_PROGRESS, Status.FINALIZING, Status.CANCELLING)
"""Those that a feeder takes up."""

OPEN = (*WORKED_ON, Status.PAUSED)
PAUSABLE = (Status.VALIDATING, Status.IN_PROGRESS)
CANCELLABLE = (*PAUSABLE, Status.PAUSED)
ENDED = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)


class DocumentState(StrEnum):
    """Where a document stands. `skipped`: an earlier backfill has done it, and what came of it is taken from there."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Backfill:
    """A backfill as its row tells it; times are UTC."""

    id: UUID
    caller: str
    status: Status
    name: str
    plan: Mapping[str, Any]
    recipe: bytes
    folder: str
    created_at: datetime
    in_progress_at: datetime | None
    paused_at: datetime | None
    finalizing_at: datetime | None
    cancelling_at: datetime | None
    ended_at: datetime | None
    progress_at: datetime | None
    round: int
    counted_from: int
    total: int
    completed: int
    failed: int
    skipped: int
    rows: int
    error: Sequence[Mapping[str, Any]] | None
    output_file: UUID | None
    report_file: UUID | None

    @property
    def ended(self) -> int:
        """How many of its documents nothing is left to do for."""
        return self.completed + self.failed + self.skipped

    @property
    def per_second(self) -> float | None:
        """Documents a second since it was last taken up; None until that can be told."""
        if self.in_progress_at is None or self.progress_at is None:
            return None
        seconds = (self.progress_at - self.in_progress_at).total_seconds()
        done = self.completed + self.failed - self.counted_from
        return done / seconds if seconds > 0 and done > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at this speed; None while it does not move or cannot be told."""
        speed = self.per_second
        if speed is None or self.status is not Status.IN_PROGRESS:
            return None
        return max(0, self.total - self.ended) / speed


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a backfill. `source` is a file's id or a path, `name` what its caller calls it."""

    number: int
    name: str
    source: str
    fingerprint: str
    size: int = 0
    labels: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How a document of a backfill stands, as its callers see it."""

    number: int
    name: str
    source: str
    size: int
    state: DocumentState
    rows: int
    error: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Tally:
    """How documents ended, and how many rows there are of them."""

    completed: int = 0
    failed: int = 0
    skipped: int = 0
    rows: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.completed + other.completed,
            self.failed + other.failed,
            self.skipped + other.skipped,
            self.rows + other.rows,
        )


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a document: its rows in the store and what they hold, or why there are none."""

    number: int
    rows: int = 0
    columns: Sequence[str] = ()
    output: str | None = None
    error: Mapping[str, Any] | None = None

    @property
    def tally(self) -> Tally:
        """This one document."""
        return Tally(int(self.error is None), int(self.error is not None), 0, self.rows)


def final_status(status: Status, tally: Tally) -> Status:
    """How a backfill ends that has nothing left to do. One of which every document failed has failed."""
    if status is Status.CANCELLING:
        return Status.CANCELLED
    return Status.FAILED if tally.failed and not tally.completed + tally.skipped else Status.COMPLETED


def step_job(backfill: Backfill, document: int, step: int, group: int) -> UUID:
    """The id of a job: always the same within a round, so that a document that is taken up again finds its jobs.

    A UUIDv7 of the backfill's own time.
    """
    named = f"{backfill.id} {backfill.round} {document} {step} {group}".encode()
    noise = int.from_bytes(blake2b(named, digest_size=10).digest())
    stamp = backfill.id.int >> 80
    return UUID(int=stamp << 80 | 0x7 << 76 | (noise >> 62 & 0xFFF) << 64 | 0b10 << 62 | noise & (2**62 - 1))
