"""Endpoints of webhooks, deliveries and attempts as callers see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from api.schemas import Reply
from tasks.backfills.backfill import PREFIX as BACKFILL
from tasks.batches import PREFIX as BATCH
from tasks.files import parsed_id, shown_id
from tasks.webhooks.endpoint import Attempt, Delivery, DeliveryNotFound, Endpoint, EndpointNotFound
from tasks.webhooks.schedule import State
from tasks.webhooks.signing import shown_secret

PREFIX = "webhook_"
MESSAGE = "msg_"

_OBJECTS = {"batch": BATCH, "backfill": BACKFILL, "webhook": PREFIX}
"""How the ids of what is told begin, by the first word of the event. A job's is a plain UUID."""


class EndpointObject(Reply):
    """Who is told of events. `secret` is there in the reply that made it, and in no other."""

    id: str
    object: Literal["webhook"]
    url: str
    events: list[str]
    description: str
    inline: bool
    status: Literal["enabled", "disabled"]
    disabled_at: datetime | None
    disabled_why: str | None
    failing_since: Annotated[datetime | None, Field(description="The first failure of those without a success since")]
    old_secret_until: Annotated[datetime | None, Field(description="So long the secret before this one signs, too")]
    created_at: datetime
    secret: str | None = None


class EndpointList(Reply):
    """Some endpoints, newest first; the next page begins after `last_id`."""

    object: Literal["list"]
    data: list[EndpointObject]
    last_id: str | None
    has_more: bool


class SecretObject(Reply):
    """A secret that signs."""

    secret: str


class AttemptObject(Reply):
    """One try. What the receiver said is not kept."""

    number: int
    at: datetime
    duration_ms: int
    status: Annotated[int | None, Field(description="Of the reply, if there was one")]
    error: str | None


class DeliveryObject(Reply):
    """One event to one receiver; `id` is its `webhook-id`. `webhook` is null where a job named its receiver itself."""

    id: str
    object: Literal["delivery"]
    webhook: str | None
    type: str
    of: Annotated[str, Field(description="The id of the job, batch or backfill that is told of")]
    status: State
    attempts: int
    next_at: Annotated[datetime | None, Field(description="Of the next attempt")]
    created_at: datetime
    ended_at: datetime | None


class DeliveryWithAttempts(DeliveryObject):
    """A delivery and all its attempts, in order."""

    tried: list[AttemptObject]


class DeliveryList(Reply):
    """Some deliveries, newest first; the next page begins after `last_id`."""

    object: Literal["list"]
    data: list[DeliveryObject]
    last_id: str | None
    has_more: bool


class Redelivered(Reply):
    """How many deliveries are sent again. While there is more, ask once more, with `after` the `last_id`."""

    redelivered: int
    last_id: str | None
    has_more: bool


def endpoint_object(endpoint: Endpoint, secret: bytes | None = None) -> dict[str, Any]:
    """An endpoint; with its secret where it has just been made."""
    shown = {} if secret is None else {"secret": shown_secret(secret)}
    return {
        "id": shown_id(PREFIX, endpoint.id),
        "object": "webhook",
        "url": endpoint.url,
        "events": list(endpoint.events),
        "description": endpoint.description,
        "inline": endpoint.inline,
        "status": "enabled" if endpoint.disabled_at is None else "disabled",
        "disabled_at": endpoint.disabled_at,
        "disabled_why": endpoint.disabled_why,
        "failing_since": endpoint.failing_since,
        "old_secret_until": endpoint.old_secret_until,
        "created_at": endpoint.created_at,
        **shown,
    }


def delivery_object(delivery: Delivery) -> dict[str, Any]:
    """A delivery."""
    prefix = _OBJECTS.get(delivery.type.partition(".")[0])
    return {
        "id": shown_id(MESSAGE, delivery.id),
        "object": "delivery",
        "webhook": None if delivery.endpoint is None else shown_id(PREFIX, delivery.endpoint),
        "type": delivery.type,
        "of": str(delivery.object) if prefix is None else shown_id(prefix, delivery.object),
        "status": delivery.state.value,
        "attempts": delivery.attempts,
        "next_at": delivery.next_at,
        "created_at": delivery.created_at,
        "ended_at": delivery.ended_at,
    }


def attempt_object(attempt: Attempt) -> dict[str, Any]:
    """One of a delivery's attempts."""
    return {name: getattr(attempt, name) for name in AttemptObject.model_fields}


def endpoint_id(text: str) -> UUID:
    """The id of an endpoint in a path. Raises EndpointNotFound."""
    found = parsed_id(PREFIX, text)
    if found is None:
        raise EndpointNotFound
    return found


def delivery_id(text: str) -> UUID:
    """The id of a delivery in a path. Raises DeliveryNotFound."""
    found = parsed_id(MESSAGE, text)
    if found is None:
        raise DeliveryNotFound
    return found


def object_id(text: str) -> UUID | None:
    """The id of what is told of, in whichever form callers have it; None for what is none."""
    for prefix in _OBJECTS.values():
        if (found := parsed_id(prefix, text)) is not None:
            return found
    try:
        return UUID(text)
    except ValueError:
        return None
