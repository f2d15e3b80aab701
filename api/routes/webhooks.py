"""/v1/webhooks: endpoints, which are told of a caller's events. The sender tells them, `tasks.webhooks`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from api import listing
from api.body import read_body
from api.identity import tenant
from api.media import Media, dumps
from api.queries import read_query
from api.route import PlainRoute, documented, needs
from api.routes.replies import errors
from api.services import services
from api.webhook_objects import (
    MESSAGE,
    PREFIX,
    DeliveryObject,
    EndpointList,
    EndpointObject,
    Redelivered,
    SecretObject,
    delivery_object,
    endpoint_id,
    endpoint_object,
)
from tasks.api_keys import Scope
from tasks.files import shown_id
from tasks.prepare import job_id
from tasks.store import deliveries, outbox
from tasks.store import endpoints as store
from tasks.webhooks.bell import ring
from tasks.webhooks.endpoint import Endpoint, EndpointDisabled
from tasks.webhooks.events import checked_events
from tasks.webhooks.requests import EndpointChange, NewEndpoint, NewSecret, Range, given, parsed
from tasks.webhooks.schedule import State
from tasks.webhooks.signing import new_secret, parsed_secret, shown_secret

router = APIRouter(route_class=PlainRoute, tags=["webhooks"])

MOST_REDELIVERED = 1000
"""Deliveries that one request sends again."""

EndpointId = Annotated[
    str, Path(description="The endpoint's id", examples=[f"{PREFIX}0199c0de000070008000000000000000"])
]


def _create_signature(body: NewEndpoint) -> None: ...


@router.post(
    "/v1/webhooks",
    summary="Create an endpoint of webhooks",
    status_code=201,
    response_model=EndpointObject,
    responses=errors(408, 413, 415, 422, 429, 503),
)
@documented(_create_signature)
async def create(request: Request) -> Response:
    """Have a URL told of what becomes of your jobs, batches and backfills. The secret is in this reply and no other."""
    it, asked = services(request), await _read(request, NewEndpoint)
    it.limits.webhooks.check(asked.url)
    secret = new_secret() if asked.secret is None else parsed_secret(asked.secret)
    now = _now(request)

    def make(conn: Any) -> Endpoint:
        return store.create(
            conn,
            id_=job_id(now.timestamp()),
            caller=tenant(request),
            url=asked.url,
            events=checked_events(asked.events),
            description=asked.description,
            inline=asked.inline,
            secret=secret,
            now=now,
        )

    made = await it.database.run(make)
    return _json(endpoint_object(made, secret), 201)


class ListQuery(BaseModel):
    """Which endpoints to list."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    after: Annotated[str | None, Field(description="`last_id` of the page before")] = None


def _listing_signature(query: Annotated[ListQuery, Query()]) -> None: ...


@router.get("/v1/webhooks", summary="List endpoints", response_model=EndpointList, responses=errors(422, 429, 503))
@documented(_listing_signature)
async def endpoints(request: Request) -> Response:
    """Endpoints, newest first."""
    query = read_query(request, ListQuery)
    found = await services(request).database.run(
        store.page, tenant(request), after=listing.after(PREFIX, query.after), limit=query.limit + 1
    )
    return _json(listing.page(found, query.limit, endpoint_object))


def _plain_signature() -> None: ...


@router.get(
    "/v1/webhook-secret", summary="Look at your own secret", response_model=SecretObject, responses=errors(429, 503)
)
@documented(_plain_signature)
@needs(Scope.WRITE)
async def own_secret(request: Request) -> Response:
    """What signs the webhooks of jobs that name a URL and no secret."""
    found = await services(request).database.run(store.own_secret, tenant(request))
    return _json({"secret": shown_secret(found)})


def _rotate_own_signature(body: NewSecret | None = None) -> None: ...


@router.post(
    "/v1/webhook-secret/rotate",
    summary="Change your own secret",
    response_model=SecretObject,
    responses=errors(408, 413, 415, 422, 429, 503),
)
@documented(_rotate_own_signature)
async def rotate_own(request: Request) -> Response:
    """From now on this one signs, and the one before does not: an endpoint has both for a day."""
    secret = await _asked_secret(request)
    await services(request).database.run(store.change_own_secret, tenant(request), secret)
    return _json({"secret": shown_secret(secret)})


def _one_signature(id: EndpointId) -> None: ...  # noqa: A002 - the name in the path


@router.get(
    "/v1/webhooks/{id}", summary="Look at an endpoint", response_model=EndpointObject, responses=errors(404, 429, 503)
)
@documented(_one_signature)
async def look(request: Request) -> Response:
    """The endpoint and how it does."""
    return await _changed(request, store.get)


def _update_signature(id: EndpointId, body: EndpointChange) -> None: ...  # noqa: A002


@router.patch(
    "/v1/webhooks/{id}",
    summary="Change an endpoint",
    response_model=EndpointObject,
    responses=errors(404, 408, 413, 415, 422, 429, 503),
)
@documented(_update_signature)
async def update(request: Request) -> Response:
    """Change what is named. What waits to be sent goes to the new URL."""
    named = given(await _read(request, EndpointChange))
    if "url" in named:
        services(request).limits.webhooks.check(named["url"])
    if "events" in named:
        named["events"] = checked_events(named["events"])
    return await _changed(request, store.update, **named)


@router.delete("/v1/webhooks/{id}", summary="Delete an endpoint", status_code=204, responses=errors(404, 429, 503))
@documented(_one_signature)
async def delete(request: Request) -> Response:
    """Forget the endpoint, and with it its deliveries."""
    await services(request).database.run(store.delete, endpoint_id(request.path_params["id"]), tenant(request))
    return Response(status_code=204)


def _rotate_signature(id: EndpointId, body: NewSecret | None = None) -> None: ...  # noqa: A002


@router.post(
    "/v1/webhooks/{id}/rotate",
    summary="Change the secret of an endpoint",
    response_model=EndpointObject,
    responses=errors(404, 408, 413, 415, 422, 429, 503),
)
@documented(_rotate_signature)
async def rotate(request: Request) -> Response:
    """Sign with a new secret, which is in this reply and no other. For 24 hours the one before signs as well."""
    secret = await _asked_secret(request)
    found = await services(request).database.run(
        store.rotate, endpoint_id(request.path_params["id"]), tenant(request), secret, _now(request)
    )
    return _json(endpoint_object(found, secret))


@router.post(
    "/v1/webhooks/{id}/test",
    summary="Send a test event",
    status_code=202,
    response_model=DeliveryObject,
    responses=errors(404, 409, 429, 503),
)
@documented(_one_signature)
async def test(request: Request) -> Response:
    """Send a `webhook.test` now, whatever the endpoint asks for. What comes of it is told by its delivery."""
    it, id_, caller = services(request), endpoint_id(request.path_params["id"]), tenant(request)

    def write(conn: Any) -> Any:
        endpoint = store.get(conn, id_, caller)
        if endpoint.disabled_at is not None:
            raise EndpointDisabled
        data = {"id": request.path_params["id"], "object": "webhook", "url": endpoint.url}
        return deliveries.get(conn, outbox.test(conn, caller, id_, data), caller)

    found = await it.database.run(write)
    await ring(it.redis)
    return _json(delivery_object(found), 202)


@router.post(
    "/v1/webhooks/{id}/disable",
    summary="Disable an endpoint",
    response_model=EndpointObject,
    responses=errors(404, 429, 503),
)
@documented(_one_signature)
async def disable(request: Request) -> Response:
    """Send it nothing more. What waits for it is dropped, and can be redelivered later."""
    return await _changed(request, store.disable, _now(request))


@router.post(
    "/v1/webhooks/{id}/enable",
    summary="Enable an endpoint",
    response_model=EndpointObject,
    responses=errors(404, 429, 503),
)
@documented(_one_signature)
async def enable(request: Request) -> Response:
    """Tell it of what happens from now on."""
    return await _changed(request, store.enable)


def _redeliver_signature(id: EndpointId, body: Range) -> None: ...  # noqa: A002


@router.post(
    "/v1/webhooks/{id}/redeliver",
    summary="Send the events of a time again",
    response_model=Redelivered,
    responses=errors(404, 408, 409, 413, 415, 422, 429, 503),
)
@documented(_redeliver_signature)
async def redeliver(request: Request) -> Response:
    """Begin anew with deliveries that were created in a time, the oldest first, under the ids that they had."""
    it, id_, caller = services(request), endpoint_id(request.path_params["id"]), tenant(request)
    asked, now = await _read(request, Range), _now(request)
    states = asked.status or [State.FAILED, State.DROPPED]

    after = listing.after(MESSAGE, asked.after)

    def again(conn: Any) -> list[UUID]:
        if store.get(conn, id_, caller).disabled_at is not None:
            raise EndpointDisabled
        until = asked.until or now
        return deliveries.redeliver_range(
            conn,
            id_,
            caller,
            since=asked.since,
            until=until,
            states=states,
            now=now,
            limit=MOST_REDELIVERED,
            after=after,
        )

    sent = await it.database.run(again)
    await ring(it.redis)
    last = shown_id(MESSAGE, sent[-1]) if sent else None
    return _json({"redelivered": len(sent), "last_id": last, "has_more": len(sent) == MOST_REDELIVERED})


async def _read(request: Request, model: Any) -> Any:
    body = await read_body(request, services(request).settings.max_body_bytes)
    return parsed(body.value, model)


async def _asked_secret(request: Request) -> bytes:
    asked = (await _read(request, NewSecret)).secret if _has_body(request.headers) else None
    return new_secret() if asked is None else parsed_secret(asked)


def _has_body(headers: Mapping[str, str]) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


async def _changed(request: Request, change: Callable[..., Endpoint], *more: Any, **named: Any) -> Response:
    id_: UUID = endpoint_id(request.path_params["id"])
    found = await services(request).database.run(change, id_, tenant(request), *more, **named)
    return _json(endpoint_object(found))


def _now(request: Request) -> datetime:
    return datetime.fromtimestamp(services(request).clock(), UTC)


def _json(body: Any, status: int = 200) -> Response:
    return Response(dumps(body), status_code=status, media_type=Media.JSON.value)
