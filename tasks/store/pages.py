"""Where a page of a list begins, and which jobs it holds. Pure."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from catalog.terms import Lane, Verb
from tasks.errors import InvalidRequest
from tasks.jobs import Job, State


@dataclass(frozen=True, slots=True)
class Filters:
    """Which jobs to list; None takes all. A job must match every filter that is set.

    `error` is the code of failed ones. `since` and `until` are of their creation, which their ids tell.
    """

    status: State | None = None
    verb: Verb | None = None
    model: str | None = None
    tag: str | None = None
    lane: Lane | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first, and the cursor of the next page; None when this is the last one."""

    jobs: tuple[Job, ...]
    next_cursor: str | None


def first_of(at: datetime) -> UUID:
    """The least id that a job may have which is created at this time, to the millisecond."""
    return UUID(int=max(0, int(at.timestamp() * 1000)) << 80)


def encode_cursor(last: UUID) -> str:
    """The cursor of the page after the job `last`."""
    return base64.urlsafe_b64encode(last.bytes).decode().rstrip("=")


def decode_cursor(cursor: str) -> UUID:
    """The job after which the page begins. Raises InvalidRequest for anything that no page of ours handed out."""
    try:
        raw = base64.b64decode(cursor + "==", altchars=b"-_", validate=True)
        if len(raw) == 16 and encode_cursor(UUID(bytes=raw)) == cursor:
            return UUID(bytes=raw)
    except (ValueError, binascii.Error):
        pass
    raise InvalidRequest("The cursor is not one that a list handed out; start again without it.", param="cursor")
