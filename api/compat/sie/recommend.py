"""POST /v1/recommend: which model to use for a task, as far as the catalog knows.

What is known is what a model costs here and whether its answers were held against the original's. How good its answers
are is not: so there is a `fast` pick and no `best` one, and the basis is said to be no evidence of quality.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.body import read_body
from api.compat.dialect import route_class
from api.compat.shapes import shaped
from api.compat.sie import errors
from api.media import Media, dumps
from api.model_objects import workers_now
from api.presence import too_large
from api.queries import NoQuery, read_query
from api.route import documented
from api.schemas import Reply
from api.services import Services, services
from catalog.errors import nearest
from catalog.loader import DEFAULT
from catalog.schema import ExtractKind, OutputKind, Spec
from tasks.costs import typical
from tasks.errors import TaskError
from tasks.items import Strict

router = APIRouter(route_class=route_class(errors.render), tags=["models"])

MAX_BODY_BYTES = 16 * 1024
MOST_OTHERS = 10
STAND_IN = "fake"
"""How families begin that compute nothing: they are for tests and simulations."""


class TaskNotFound(TaskError):
    """There is no such task."""

    code = "task_not_found"


class RecommendRequest(Strict):
    """A task that a model is wanted for."""

    task: Annotated[str, Field(min_length=1, max_length=100)]
    target_language: Annotated[
        str | None, Field(max_length=40, description="Changes nothing: no model here was measured by language")
    ] = None


class SieChoice(Reply):
    """A pick, and what is known of it."""

    intent: Literal["fast"]
    model: str
    runtime_id: str
    profile: str
    alias: None
    available: Literal[True]
    quality_ref: None
    performance_ref: Annotated[str, Field(description="Where its price is told")]
    measurement_status: Literal["verified", "unverified"]
    evidence_guarded: Annotated[bool, Field(description="Whether tests hold its answers against the original's")]


class SieRecommendation(Reply):
    """What the catalog knows for a task."""

    task: str
    label: str
    basis: Literal["no_evidence"]
    shared_benchmarks: Annotated[list[str], Field(max_length=0)]
    fast: Annotated[SieChoice | None, Field(description="The cheapest, a verified one if there is any")] = None
    others: Annotated[list[str], Field(description="The next ones in the same order")]


def _gives(output: OutputKind) -> Callable[[Spec], bool]:
    return lambda spec: spec.tasks.encode is not None and output in spec.tasks.encode.outputs


def _finds(kind: ExtractKind) -> Callable[[Spec], bool]:
    return lambda spec: spec.tasks.extract is not None and kind in spec.tasks.extract.kinds


TASKS: Mapping[str, tuple[str, Callable[[Spec], bool]]] = {
    "embed": ("Dense vectors", _gives("dense")),
    "embed_sparse": ("Sparse vectors", _gives("sparse")),
    "embed_multivector": ("A vector for each token or patch", _gives("multivector")),
    "rerank": ("Scores of documents by a query", lambda spec: spec.tasks.score is not None),
    "generate": ("Texts", lambda spec: spec.tasks.generate is not None),
    **{kind.value: (f"Extraction: {kind.value}", _finds(kind)) for kind in ExtractKind},
}
"""The tasks, each with its label and the models that do it."""


def _signature(body: RecommendRequest) -> None: ...


@router.post(
    "/v1/recommend",
    summary="Ask for a model",
    response_model=SieRecommendation,
    response_model_exclude_unset=True,
    responses=errors.errors(404, 408, 413, 415, 503),
)
@documented(_signature)
async def recommend(request: Request) -> Response:
    """The cheapest model of the catalog for a task on the hardware that is there, verified ones first.

    Which is the best is not said: no two models here were measured on one benchmark.
    """
    read_query(request, NoQuery)
    it = services(request)
    asked = shaped(RecommendRequest, (await read_body(request, MAX_BODY_BYTES)).value)
    label, does = _task(asked.task)
    return Response(dumps(told(asked.task, label, await _candidates(it, does))), media_type=Media.JSON.value)


def _task(name: str) -> tuple[str, Callable[[Spec], bool]]:
    if (found := TASKS.get(name)) is None:
        near = nearest(name, list(TASKS), 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise TaskNotFound(f"There is no task {name[:100]!r}.{hint} There are: {', '.join(TASKS)}.", param="task")
    return found


async def _candidates(it: Services, does: Callable[[Spec], bool]) -> list[Spec]:
    """The models that do it and may run, in the order in which they are told."""
    catalog, workers = it.catalog, await workers_now(it)
    able = [
        spec
        for spec in catalog.specs
        if not spec.family.startswith(STAND_IN)
        and does(spec)
        and catalog.allows(spec)
        and too_large(spec.id, workers) is None
    ]
    return sorted(able, key=lambda spec: (not spec.verified, typical(it.prices.of(catalog.look_up(spec.id)))))


def told(task: str, label: str, specs: Sequence[Spec]) -> dict[str, Any]:
    """The peer's `Recommendation`; without a pick where no model does the task."""
    body: dict[str, Any] = {"task": task, "label": label, "basis": "no_evidence", "shared_benchmarks": []}
    if specs:
        body["fast"] = _choice(specs[0])
    return {**body, "others": [spec.id for spec in specs[1 : 1 + MOST_OTHERS]]}


def _choice(spec: Spec) -> dict[str, Any]:
    return {
        "intent": "fast",
        "model": spec.id,
        "runtime_id": spec.id,
        "profile": DEFAULT,
        "alias": None,
        "available": True,
        "quality_ref": None,
        "performance_ref": f"/v1/models/{spec.id}",
        "measurement_status": "verified" if spec.verified else "unverified",
        "evidence_guarded": spec.verified,
    }
