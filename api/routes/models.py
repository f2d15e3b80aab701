"""GET /v1/models: what the catalog has, what it costs, and where it is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from api.compat.dialect import Failure, route_class
from api.compat.openai import errors as openai
from api.compat.sie import models as sie
from api.compat.sie.caller import or_peer
from api.compat.sie.model_schemas import SieModelInfo, SieModelList
from api.media import Media, dumps
from api.model_objects import find_model, model_object, now
from api.model_schemas import ModelList, ModelObject
from api.queries import NoQuery, read_query
from api.route import documented
from api.routes.replies import errors
from api.services import services
from catalog.errors import InvalidSpec
from catalog.schema import InputKind, OutputKind, Spec
from catalog.terms import Verb


def _render(request: Request, failure: Failure) -> Response:
    """Our statuses, in OpenAI's envelope: it has every field of ours."""
    return Response(dumps(openai.body_of(failure)), status_code=failure.status, media_type=Media.JSON.value)


router = APIRouter(route_class=route_class(_render), tags=["models"])


class ModelFilters(BaseModel):
    """Which models to list. A model must match every filter that is set."""

    model_config = ConfigDict(extra="forbid")

    verb: Annotated[Verb | None, Field(description="Those that do it")] = None
    family: Annotated[str | None, Field(description="The exact name")] = None
    input: Annotated[InputKind | None, Field(description="Those whose items may hold it")] = None
    output: Annotated[OutputKind | None, Field(description="Those whose `encode` gives it")] = None
    verified: Annotated[bool | None, Field(description="Whether its answers were held against the original's")] = None
    allowed: Annotated[bool | None, Field(description="Whether the operator lets it have what it needs")] = None
    loaded: Annotated[bool | None, Field(description="Whether it is on a device now")] = None

    def take(self, spec: Spec) -> bool:
        """Whether the catalog's own facts match; `allowed` and `loaded` are no such facts."""
        encode = spec.tasks.encode
        return (
            (self.verb is None or spec.does(self.verb))
            and self.family in (None, spec.family)
            and (self.input is None or self.input in spec.inputs)
            and (self.output is None or (encode is not None and self.output in encode.outputs))
            and self.verified in (None, spec.verified)
        )

    def fit(self, told: dict[str, Any]) -> bool:
        """Whether the rest matches, by the model's object."""
        return self.allowed in (None, told["allowed"]) and self.loaded in (None, told["loaded"])


def _listing_signature(query: Annotated[ModelFilters, Query()]) -> None: ...


@router.get(
    "/v1/models",
    summary="List models",
    response_model=ModelList | SieModelList,
    responses=errors(422, model=openai.OpenAIErrorReply),
)
@documented(_listing_signature)
@or_peer(sie.listing)
async def listing(request: Request) -> Response:
    """Every model of the catalog, by id. Where it is loaded comes from the workers' heartbeats.

    OpenAI's fields are among ours. With the header X-SIE-SDK-Version the reply is `{"models": […]}`, as the client
    that sends it reads it.
    """
    filters = read_query(request, ModelFilters)
    it = services(request)
    at, catalog = await now(it), it.catalog
    told = [
        model_object(spec, at, it.prices.of(catalog.look_up(spec.id)), allowed=catalog.allows(spec))
        for spec in catalog.specs
        if filters.take(spec)
    ]
    body = {"object": "list", "data": [*filter(filters.fit, told)], "problems": [*map(_told, catalog.problems)]}
    return Response(dumps(body), media_type=Media.JSON.value)


def _one_signature(
    id: Annotated[str, InPath(description="The model's id, or `id:profile`")],  # noqa: A002 - the name in the path
) -> None: ...


@router.get(
    "/v1/models/{id:path}",
    summary="Look at a model",
    response_model=ModelObject | SieModelInfo,
    responses=errors(404, 422, model=openai.OpenAIErrorReply),
)
@documented(_one_signature)
@or_peer(sie.one)
async def one(request: Request) -> Response:
    """One model, by its id; its slash may be written plain, as %2F or as `__`. `id:profile` finds the profile's model.

    With the header X-SIE-SDK-Version the reply is as the client that sends it reads it.
    """
    read_query(request, NoQuery)
    it = services(request)
    choice = await find_model(it, request.path_params["id"])
    told = model_object(choice.spec, await now(it), it.prices.of(choice), allowed=it.catalog.allows(choice.spec))
    return Response(dumps(told), media_type=Media.JSON.value)


def _told(problem: InvalidSpec) -> str:
    """What is wrong with a file, without the folder that it is in."""
    path, colon, rest = problem.message.partition(": ")
    return f"{Path(path).name}{colon}{rest}"
