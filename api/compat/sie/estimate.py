"""POST /v1/estimate: what a request would cost, by the very door it would go through, without running it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.body import OFF_LOOP_BYTES, read_body
from api.compat.batchable import ENDPOINTS
from api.compat.calls import admitted
from api.compat.dialect import route_class
from api.compat.endpoints import Asked
from api.compat.shapes import shaped
from api.compat.sie import encode, errors, extract, generate, score
from api.compat.sie.grammars import has_grammar
from api.compat.sie.job_request import is_sie_job, to_native
from api.door import off_loop
from api.identity import tenant
from api.media import Media, dumps
from api.queries import NoQuery, read_query
from api.route import documented
from api.schemas import Reply
from api.services import services
from catalog.errors import suggestion
from catalog.loader import DEFAULT
from catalog.terms import Verb
from tasks.errors import InvalidRequest
from tasks.items import Strict
from tasks.messages import Submission

router = APIRouter(route_class=route_class(errors.render), tags=["jobs"])

_VERBS: Mapping[str, Callable[[str, Mapping[str, Any]], Asked]] = {
    "encode": encode.to_job,
    "score": score.to_job,
    "extract": extract.to_job,
    "generate": generate.to_job,
}
_JOBS = "/v1/jobs"


class EstimateRequest(Strict):
    """A request that is not made."""

    endpoint: Annotated[
        str,
        Field(
            pattern=r"^/",
            max_length=400,
            description="Its path, such as `/v1/encode/BAAI/bge-m3`, `/v1/jobs` or `/v1/embeddings`",
        ),
    ]
    request: Annotated[dict[str, Any], Field(description="Its body")]


class SieIdentity(Reply):
    """What is priced."""

    model: str
    profile: str
    operation: Verb
    region: Literal["local"]


class SieEstimate(Reply):
    """The price. Nobody is charged: credits are 0, and no rates are told."""

    endpoint: str
    identity: SieIdentity
    estimated_credits: Literal[0]
    unit_ceilings: Annotated[
        dict[str, int], Field(description="`device_ms`, `items`, and the model's own unit: tokens, pages, …")
    ]
    applied_rates: Annotated[list[Any], Field(max_length=0)]
    rate_book_version: Literal["none"]
    rate_book_sha256: Literal[""]
    rounding_rule: Literal["none"]
    estimate_basis: Literal["predicted_device_ms"]
    predicted_ms: Annotated[float, Field(description="Milliseconds on the device, as the job's `cost.predicted_ms`")]
    lane: str
    bucket: Annotated[str, Field(description="Which queue of the lane it would wait in, by its price")]
    items_refused: Annotated[int, Field(description="Items that would fail at the door, such as blank texts")]


def _signature(body: EstimateRequest) -> None: ...


@router.post(
    "/v1/estimate",
    summary="Price a request",
    response_model=SieEstimate,
    responses=errors.errors(403, 404, 408, 413, 415, 429, 503),
)
@documented(_signature)
async def estimate(request: Request) -> Response:
    """The predicted cost of a request to another route, with the same checks and errors. Nothing runs and none is kept.

    Lengths and milliseconds are predictions, as every job has one; a text may turn out longer by the model's own count.
    """
    read_query(request, NoQuery)
    it = services(request)
    body = await read_body(request, it.settings.max_body_bytes)
    large = body.size > OFF_LOOP_BYTES
    asked_for = shaped(EstimateRequest, body.value)
    slow = large or has_grammar(asked_for.request)
    asked = await off_loop(slow, to_job, asked_for)
    job = await admitted(it, asked, caller=tenant(request), large=large)
    unit = it.catalog.look_up(job.model).spec.unit
    return Response(dumps(told(asked_for.endpoint, job, unit)), media_type=Media.JSON.value)


def to_job(asked: EstimateRequest) -> Asked:
    """The native request that a call of the endpoint would be. Raises InvalidRequest for one that runs no job."""
    path, body = asked.endpoint, asked.request
    if path == _JOBS:
        return to_native(body) if is_sie_job(body) else Asked(body)
    verb, _, model = path.removeprefix("/v1/").partition("/")
    if model and verb in _VERBS:
        return _VERBS[verb](model, body)
    if (endpoint := ENDPOINTS.get(path)) is not None:
        return endpoint.to_job(body)
    known = [*(f"/v1/{name}/{{model}}" for name in _VERBS), _JOBS, *ENDPOINTS]
    hint = suggestion(path, known, f"; there are: {', '.join(known)}.")
    raise InvalidRequest(f"'endpoint' {path[:100]!r} is no path that a job is priced for{hint}", param="endpoint")


def told(endpoint: str, job: Submission, unit: str) -> dict[str, Any]:
    """The peer's `CostEstimate`, and our own prediction beside it."""
    model, _, profile = job.model.partition(":")
    return {
        "endpoint": endpoint,
        "identity": {
            "model": model,
            "profile": profile or DEFAULT,
            "operation": job.verb.value,
            "region": "local",
        },
        "estimated_credits": 0,
        "unit_ceilings": {"device_ms": math.ceil(job.cost_ms), "items": job.items, unit: sum(job.lengths)},
        "applied_rates": [],
        "rate_book_version": "none",
        "rate_book_sha256": "",
        "rounding_rule": "none",
        "estimate_basis": "predicted_device_ms",
        "predicted_ms": round(job.cost_ms, 3),
        "lane": job.lane.value,
        "bucket": job.bucket,
        "items_refused": len(job.faults),
    }
