"""/v1/dead: failed jobs by reason, and trying many of them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.requests import Request
from starlette.responses import Response

from api.body import read_body
from api.dead_objects import DeadList, RedrivenObject, group_object, redriven_object
from api.identity import tenant
from api.media import Media, dumps
from api.queries import read_query
from api.render import moment
from api.retrying import redrive_all, redrive_ids
from api.route import PlainRoute, documented
from api.routes.replies import errors
from api.services import services
from catalog.terms import Lane, Verb
from tasks.dead import MOST_REDRIVEN, Dead
from tasks.errors import InvalidRequest
from tasks.items import Strict, fault
from tasks.moments import Moment
from tasks.request import explain
from tasks.store import dead as store

router = APIRouter(route_class=PlainRoute, tags=["dead letters"])

_Code = Annotated[str | None, Field(description="Those with this error code", min_length=1, max_length=100)]
_Model = Annotated[str | None, Field(description="Those of this model: its exact id", min_length=1, max_length=512)]
_Since = Annotated[Moment | None, Field(description="Those that failed from this time on (RFC 3339)")]
_Until = Annotated[Moment | None, Field(description="Those that failed before this time (RFC 3339)")]


class DeadQuery(BaseModel):
    """Which failed jobs. One must match every filter that is set."""

    model_config = ConfigDict(extra="forbid")

    code: _Code = None
    model: _Model = None
    verb: Verb | None = None
    lane: Lane | None = None
    since: _Since = None
    until: _Until = None


class RedriveRequest(Strict):
    """Which failed jobs are tried again: those of these ids, or those that match every filter."""

    ids: Annotated[
        list[Annotated[UUID, Field(strict=False)]] | None,
        Field(min_length=1, max_length=MOST_REDRIVEN, description="Jobs, those among them that ended their workers"),
    ] = None
    code: _Code = None
    model: _Model = None
    verb: Annotated[Verb | None, Field(strict=False)] = None
    lane: Annotated[Lane | None, Field(strict=False)] = None
    since: _Since = None
    until: _Until = None
    killers: Annotated[
        bool, Field(description="Those, too, that ended their workers; each of them is tried alone on its device")
    ] = False
    limit: Annotated[int, Field(ge=1, le=MOST_REDRIVEN, description="At most so many, the oldest first")] = (
        MOST_REDRIVEN
    )
    after: Annotated[
        UUID | None, Field(strict=False, description="Those beyond this one: the `last_id` of the reply before")
    ] = None

    @model_validator(mode="after")
    def _one_way(self) -> RedriveRequest:
        if self.ids is not None and (others := sorted(self.model_fields_set - {"ids"})):
            raise fault("goes with no 'ids': name jobs or filter them", others[0])
        return self


def _groups_signature(query: Annotated[DeadQuery, Query()]) -> None: ...


@router.get("/v1/dead", summary="List reasons of failed jobs", response_model=DeadList, responses=errors(422, 429, 503))
@documented(_groups_signature)
async def groups(request: Request) -> Response:
    """Failed jobs that are kept, by error code, model and verb, those with the most jobs first.

    `GET /v1/jobs?status=failed&error=CODE` lists the jobs themselves.
    """
    it, query = services(request), read_query(request, DeadQuery)
    dead = Dead(**query.model_dump())
    found, complete = await it.database.run(store.groups, tenant(request), dead, moment(it.clock()))
    return _json({"object": "list", "data": [group_object(group) for group in found], "complete": complete})


def _redrive_signature(body: RedriveRequest) -> None: ...


@router.post(
    "/v1/dead/redrive",
    summary="Try failed jobs again",
    response_model=RedrivenObject,
    responses=errors(408, 413, 415, 422, 429, 503),
)
@documented(_redrive_signature)
async def redrive(request: Request) -> Response:
    """Queue failed jobs again, under their ids. They count against the limits of their tenant as new jobs do.

    Jobs that ended their workers are left out unless they are asked for by id or by `killers`.
    """
    it, caller = services(request), tenant(request)
    asked = _parsed((await read_body(request, it.settings.max_body_bytes)).value)
    if asked.ids is not None:
        return _json(redriven_object(await redrive_ids(it, caller, asked.ids)))
    dead = Dead(asked.code, asked.model, asked.verb, asked.lane, asked.since, asked.until)
    return _json(redriven_object(await redrive_all(it, caller, dead, asked.limit, asked.after, killers=asked.killers)))


def _parsed(raw: object) -> RedriveRequest:
    if not isinstance(raw, Mapping):
        raise InvalidRequest("The body must be a JSON object.")
    try:
        return RedriveRequest.model_validate(raw)
    except ValidationError as error:
        raise explain(error.errors(include_url=False), RedriveRequest) from None


def _json(body: Any) -> Response:
    return Response(dumps(body), media_type=Media.JSON.value)
