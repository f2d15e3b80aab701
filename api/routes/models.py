"""GET /v1/models: what the catalog has, what it costs, and where it is loaded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.backlog import Backlog, read_backlog
from api.media import Media, dumps
from api.model_schemas import ModelList, ModelObject
from api.presence import Worker
from api.residency import moment, summed, whole
from api.routes.replies import errors
from api.services import Services, services
from catalog.errors import InvalidSpec
from catalog.options import option_names
from catalog.schema import CostCoefficients, Spec
from tasks.errors import BrokerUnavailable

log = logging.getLogger(__name__)

router = APIRouter(tags=["models"])

LOADED = "resident"
"""The state of a model that is on its device, in a heartbeat."""


@router.get("/v1/models", summary="List models", response_model=ModelList, responses=errors())
async def listing(request: Request) -> Response:
    """Every model of the catalog, by id. Where it is loaded comes from the workers' heartbeats."""
    it = services(request)
    workers, backlog = await _now(it)
    catalog = it.catalog
    told = [
        model_object(spec, workers, backlog, it.prices.of(catalog.look_up(spec.id)), allowed=catalog.allows(spec))
        for spec in catalog.specs
    ]
    body = {"object": "list", "data": told, "problems": list(map(_told, catalog.problems))}
    return Response(dumps(body), media_type=Media.JSON.value)


@router.get("/v1/models/{id:path}", summary="Look at a model", response_model=ModelObject, responses=errors(404, 422))
async def one(request: Request, id: str) -> Response:  # noqa: A002 - the name in the path
    """One model, by its id; its slash may be written plain or as %2F. `id:profile` finds the model of the profile."""
    it = services(request)
    await it.asking.meet(id)
    choice = it.catalog.look_up(id)
    told = model_object(choice.spec, *await _now(it), it.prices.of(choice), allowed=it.catalog.allows(choice.spec))
    return Response(dumps(told), media_type=Media.JSON.value)


def _told(problem: InvalidSpec) -> str:
    """What is wrong with a file, without the folder that it is in."""
    path, colon, rest = problem.message.partition(": ")
    return f"{Path(path).name}{colon}{rest}"


async def _now(it: Services) -> tuple[Sequence[Worker], Backlog]:
    """The live workers and what waits; nothing when the broker is away: the catalog is worth telling by itself."""
    try:
        return await it.presence.live(), await read_backlog(it.redis)
    except BrokerUnavailable:
        log.warning("models are told without where they are loaded: the broker cannot be reached")
        return (), Backlog()


def model_object(
    spec: Spec, workers: Sequence[Worker], backlog: Backlog, cost: CostCoefficients, *, allowed: bool = True
) -> dict[str, Any]:
    """The model object of a reply. `cost` is what jobs of it are priced by now."""
    encode = spec.tasks.encode
    here = [
        (worker, model)
        for worker in workers
        for model in worker.models
        if str(model.get("key", "")).partition(":")[0].partition("@")[0] == spec.id
    ]
    return {
        "id": spec.id,
        "object": "model",
        "family": spec.family,
        "description": spec.description,
        "licence": spec.licence,
        "verbs": list(spec.verbs),
        "tasks": spec.tasks.model_dump(),
        "options": {verb.value: option_names(spec, verb) for verb in spec.verbs},
        "inputs": list(spec.inputs),
        "image_length": spec.image_length,
        "loras": sorted(spec.loras),
        "profiles": sorted(spec.profiles),
        "dims": encode.dims if encode else None,
        "matryoshka": list(encode.matryoshka) if encode else [],
        "prompts": sorted(encode.prompts) if encode else [],
        "outputs": list(encode.outputs) if encode else [],
        "max_length": spec.max_length,
        "unit": spec.unit,
        "parameters": spec.parameters,
        "verified": spec.verified,
        "needs": list(spec.source.needs),
        "allowed": allowed,
        "cost": cost.model_dump(),
        "loaded": any(model.get("state") == LOADED for _, model in here),
        **summed([model for _, model in here]),
        "queued": backlog.of(spec.id),
        "workers": [_holder(worker, model) for worker, model in here],
        "too_large": [
            {"worker": worker.name, "reason": reason}
            for worker in workers
            if (reason := worker.refusal(spec.id)) is not None
        ],
    }


def _holder(worker: Worker, model: Any) -> dict[str, Any]:
    return {
        "name": worker.name,
        "device": worker.device,
        "profile": str(model["key"]).partition(":")[2] or "default",
        "state": str(model.get("state", "")),
        "bytes": model.get("bytes"),
        "leases": model.get("leases"),
        "pinned": bool(model.get("pinned")),
        "loads": whole(model.get("loads")),
        "evictions": whole(model.get("evictions")),
        "load_s": float(model.get("load_s") or 0.0),
        "waiting": whole(model.get("waiting")),
        "last_used": moment(model.get("last_used")),
        "last_error": model.get("last_error"),
    }
