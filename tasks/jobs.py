"""The states of a job and the moves between them. Pure; docs/job-states.md draws the same table.

A move is guarded twice: by this table, and by the fence. Each delivery of a job to a worker after the first raises the
job's fence, so that of two workers holding the same job only the newer one can commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from catalog.terms import Lane, Verb


class State(StrEnum):
    """Where a job stands. The last four are final."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def final(self) -> bool:
        """Whether the job has ended for good."""
        return self in FINAL


FINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.EXPIRED})
OPEN = frozenset({State.QUEUED, State.RUNNING})


class Event(StrEnum):
    """What can happen to a job."""

    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"
    LOSE = "lose"
    """The attempt is lost: its worker died or handed it back."""
    RETRY = "retry"
    """A caller asks for another try of an ended job."""


MOVES: Mapping[tuple[State, Event], State] = {
    (State.QUEUED, Event.START): State.RUNNING,
    (State.QUEUED, Event.SUCCEED): State.SUCCEEDED,
    (State.QUEUED, Event.FAIL): State.FAILED,
    (State.QUEUED, Event.CANCEL): State.CANCELLED,
    (State.QUEUED, Event.EXPIRE): State.EXPIRED,
    (State.QUEUED, Event.LOSE): State.QUEUED,
    (State.RUNNING, Event.START): State.RUNNING,
    (State.RUNNING, Event.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Event.FAIL): State.FAILED,
    (State.RUNNING, Event.CANCEL): State.CANCELLED,
    (State.RUNNING, Event.EXPIRE): State.EXPIRED,
    (State.RUNNING, Event.LOSE): State.QUEUED,
    (State.FAILED, Event.RETRY): State.QUEUED,
    (State.CANCELLED, Event.RETRY): State.QUEUED,
    (State.EXPIRED, Event.RETRY): State.QUEUED,
}
"""QUEUED → SUCCEEDED is no shortcut: a short job's start is not written on its own (see docs/decisions)."""


def move(state: State, event: Event) -> State | None:
    """The state after `event`, or None when the event changes nothing in this state."""
    return MOVES.get((state, event))


def states_before(event: Event) -> tuple[State, ...]:
    """The states in which `event` has an effect: the guard of the SQL that applies it."""
    return tuple(state for (state, e) in MOVES if e is event)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its row tells it, without inputs and result. Times are UTC."""

    id: UUID
    caller: str
    verb: Verb
    model: str
    revision: str | None
    lane: Lane
    priority: int
    state: State
    items: int
    items_failed: int
    cost_ms: float
    device_ms: float | None
    attempt: int
    fence: int
    version: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None
    expires_at: datetime | None
    tags: tuple[str, ...]
    options: Mapping[str, Any]
    error: Mapping[str, Any] | None
    timings: Mapping[str, float] | None
    usage: Mapping[str, int] | None
    idempotency_key: str | None
    worker: str | None
    keep: bool = True
    """false: the inputs went when it ended, and the result once it was answered"""
