"""/v1/deliveries: what was told to whom, with every attempt."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from api import listing
from api.identity import tenant
from api.media import Media, dumps
from api.queries import read_query
from api.route import PlainRoute, documented
from api.routes.replies import errors
from api.services import services
from api.webhook_objects import (
    MESSAGE,
    PREFIX,
    DeliveryList,
    DeliveryObject,
    DeliveryWithAttempts,
    attempt_object,
    delivery_id,
    delivery_object,
    object_id,
)
from catalog.errors import suggestion
from tasks.errors import InvalidRequest
from tasks.files import parsed_id
from tasks.store import deliveries as store
from tasks.store import endpoints
from tasks.webhooks.bell import ring
from tasks.webhooks.endpoint import Delivery, EndpointDisabled
from tasks.webhooks.events import TYPES
from tasks.webhooks.schedule import State

router = APIRouter(route_class=PlainRoute, tags=["webhooks"])

DeliveryId = Annotated[
    str, Path(description="The delivery's id", examples=[f"{MESSAGE}0199c0de000070008000000000000000"])
]


class ListQuery(BaseModel):
    """Which deliveries to list. One must match every filter that is set."""

    model_config = ConfigDict(extra="forbid")

    webhook: Annotated[str | None, Field(description="Those to this endpoint")] = None
    status: State | None = None
    type: Annotated[str | None, Field(description=f"Those of this event: {', '.join(TYPES)}")] = None
    of: Annotated[str | None, Field(description="Those of this job, batch or backfill")] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    after: Annotated[str | None, Field(description="`last_id` of the page before")] = None


def _listing_signature(query: Annotated[ListQuery, Query()]) -> None: ...


@router.get("/v1/deliveries", summary="List deliveries", response_model=DeliveryList, responses=errors(422, 429, 503))
@documented(_listing_signature)
async def deliveries(request: Request) -> Response:
    """Deliveries, newest first."""
    query = read_query(request, ListQuery)
    filters = store.Filters(
        endpoint=_parsed("webhook", query.webhook, parsed_id(PREFIX, query.webhook or "")),
        state=query.status,
        type=_event(query.type),
        object=_parsed("of", query.of, object_id(query.of or "")),
    )
    after = listing.after(MESSAGE, query.after)
    found = await services(request).database.run(
        store.page, tenant(request), filters, after=after, limit=query.limit + 1
    )
    return _json(listing.page(found, query.limit, delivery_object))


def _one_signature(id: DeliveryId) -> None: ...  # noqa: A002 - the name in the path


@router.get(
    "/v1/deliveries/{id}",
    summary="Look at a delivery",
    response_model=DeliveryWithAttempts,
    responses=errors(404, 429, 503),
)
@documented(_one_signature)
async def look(request: Request) -> Response:
    """The delivery with every attempt."""
    id_, caller = delivery_id(request.path_params["id"]), tenant(request)

    def read(conn: Any) -> tuple[Delivery, list[Any]]:
        return store.get(conn, id_, caller), store.attempts(conn, id_)

    found, tried = await services(request).database.run(read)
    return _json({**delivery_object(found), "tried": [attempt_object(one) for one in tried]})


@router.post(
    "/v1/deliveries/{id}/redeliver",
    summary="Send a delivery again",
    status_code=202,
    response_model=DeliveryObject,
    responses=errors(404, 409, 429, 503),
)
@documented(_one_signature)
async def redeliver(request: Request) -> Response:
    """Begin anew with its attempts, now, under the id that it has."""
    it, id_, caller = services(request), delivery_id(request.path_params["id"]), tenant(request)
    now = datetime.fromtimestamp(it.clock(), UTC)

    def again(conn: Any) -> Delivery:
        endpoint = store.get(conn, id_, caller).endpoint
        if endpoint is not None and endpoints.get(conn, endpoint, caller).disabled_at is not None:
            raise EndpointDisabled
        return store.redeliver(conn, id_, caller, now)

    found = await it.database.run(again)
    await ring(it.redis)
    return _json(delivery_object(found), 202)


def _event(name: str | None) -> str | None:
    if name is not None and name not in TYPES:
        raise InvalidRequest(f"'type' is no event{suggestion(name, TYPES)}", param="type")
    return name


def _parsed(name: str, text: str | None, found: UUID | None) -> UUID | None:
    if text is not None and found is None:
        raise InvalidRequest(f"{name!r} is no id of such a thing.", param=name)
    return found


def _json(body: Any, status: int = 200) -> Response:
    return Response(dumps(body), status_code=status, media_type=Media.JSON.value)
