"""Dead letters: jobs that failed and are kept, grouped by reason, and which of them are tried again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from catalog.terms import Lane, Verb
from tasks.errors import TimeLimit, WorkerLost

KILLERS = (WorkerLost.code, TimeLimit.code)
"""The reasons of jobs that ended their workers, or had to be ended with them: set apart, and tried alone."""

MOST_REDRIVEN = 1000
"""Jobs that one request tries again."""

MOST_GROUPS = 500
"""Groups in one answer, those with the most jobs."""


@dataclass(frozen=True, slots=True)
class Dead:
    """Which failed jobs; None takes all."""

    code: str | None = None
    model: str | None = None
    verb: Verb | None = None
    lane: Lane | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Failed jobs with one reason. `example` is the newest of them."""

    code: str
    model: str
    verb: Verb
    jobs: int
    first: datetime
    last: datetime
    example: UUID

    @property
    def killed_workers(self) -> bool:
        """Whether these are set apart."""
        return self.code in KILLERS


@dataclass(frozen=True, slots=True)
class Redriven:
    """Jobs that are queued again, and those of the ids asked for that cannot be, with why.

    `last` is the last of those that were looked at in the order of ids: `more` are beyond it.
    """

    jobs: Sequence[UUID]
    refused: Sequence[tuple[UUID, str]] = ()
    more: bool = False
    last: UUID | None = None


def refusal(*, exists: bool, failed: bool, kept: bool) -> str:
    """Why a job that was asked for is not tried again."""
    if not exists:
        return "There is no such job, or its retention has ended."
    if not failed:
        return "The job has not failed, or is tried again already."
    if not kept:
        return "The job was submitted with 'store': false, so its inputs are gone. Submit the work again."
    return "The job is tried again by another request."
