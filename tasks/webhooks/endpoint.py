"""Endpoints, deliveries and attempts as their rows tell them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tasks.errors import TaskError
from tasks.webhooks.schedule import State

ROTATION = timedelta(hours=24)
"""For so long after a rotation the old secret signs, too."""

MOST_ENDPOINTS = 50
"""Endpoints of one caller."""

MOST_ATTEMPTS = 1000
"""Attempts of one delivery that are shown, the newest."""


class EndpointNotFound(TaskError):
    """No such endpoint."""

    code = "endpoint_not_found"


class DeliveryNotFound(TaskError):
    """No such delivery, or its retention has ended."""

    code = "delivery_not_found"


class EndpointDisabled(TaskError):
    """The endpoint is disabled; enable it first."""

    code = "endpoint_disabled"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Who is told of a caller's events. Times are UTC."""

    id: UUID
    caller: str
    url: str = field(repr=False)
    description: str
    events: tuple[str, ...]
    inline: bool
    created_at: datetime
    old_secret_until: datetime | None
    failing_since: datetime | None
    disabled_at: datetime | None
    disabled_why: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event to one receiver. `endpoint` is None where a job named its receiver itself."""

    id: UUID
    caller: str
    endpoint: UUID | None
    type: str
    object: UUID
    created_at: datetime
    state: State
    attempts: int
    next_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a delivery. `error` is in our words; what the receiver said is not kept."""

    number: int
    at: datetime
    duration_ms: int
    status: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Due:
    """A delivery that was taken to be tried now: this is attempt number `attempts`, and number `tries` of its series.

    `keys` are the secrets that sign; none where the caller's own does.
    """

    id: UUID
    caller: str
    endpoint: UUID | None
    target: str
    url: str = field(repr=False)
    keys: tuple[bytes, ...] = field(repr=False)
    inline: bool
    type: str
    object: UUID
    data: Mapping[str, Any]
    created_at: datetime
    attempts: int
    tries: int
