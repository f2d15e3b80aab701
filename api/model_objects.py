"""Models as their callers see them: one reading of catalog and heartbeats, told by each dialect in its own words."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.backlog import Backlog, read_backlog
from api.presence import Worker
from api.residency import moment, summed, whole
from api.services import Services
from catalog.loader import Choice
from catalog.options import option_names
from catalog.schema import CostCoefficients, Spec
from tasks.errors import BrokerUnavailable

log = logging.getLogger(__name__)

LOADED = "resident"
"""The state of a model that is on its device, in a heartbeat."""

CREATED = 0
"""When a model was made, which OpenAI's clients want to read: the catalog does not know it of any."""


@dataclass(frozen=True, slots=True)
class Now:
    """The live workers, and what waits for them."""

    workers: Sequence[Worker]
    backlog: Backlog


async def now(it: Services) -> Now:
    """As it is now; nothing when the broker is away: the catalog is worth telling by itself."""
    try:
        return Now(await it.presence.live(), await read_backlog(it.redis))
    except BrokerUnavailable:
        log.warning(_UNTOLD)
        return Now((), Backlog())


async def workers_now(it: Services) -> Sequence[Worker]:
    """The workers of `now` alone, for who tells nothing of what waits: that is two more trips to the broker."""
    try:
        return await it.presence.live()
    except BrokerUnavailable:
        log.warning(_UNTOLD)
        return ()


_UNTOLD = "models are told without where they are loaded: the broker cannot be reached"


async def find_model(it: Services, path: str) -> Choice:
    """The model that a path names, looked for if no file names it. Raises a CatalogError."""
    await it.asking.meet(path)
    return it.catalog.look_up(path)


def owner(model: str) -> str:
    """Who a model is of, as its id says: what comes before the slash."""
    return model.partition("/")[0]


def holders(spec: Spec, workers: Sequence[Worker]) -> list[tuple[Worker, Mapping[str, Any]]]:
    """Where a model is or was asked for, under any of its profiles, with what the worker's heartbeat says of it."""
    return [
        (worker, model)
        for worker in workers
        for model in worker.models
        if str(model.get("key", "")).partition(":")[0].partition("@")[0] == spec.id
    ]


def model_object(spec: Spec, at: Now, cost: CostCoefficients, *, allowed: bool = True) -> dict[str, Any]:
    """The model object of a native reply, which OpenAI's clients read too. `cost` is what jobs are priced by now."""
    encode = spec.tasks.encode
    here = holders(spec, at.workers)
    return {
        "id": spec.id,
        "object": "model",
        "created": CREATED,
        "owned_by": owner(spec.id),
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
        "queued": at.backlog.of(spec.id),
        "workers": [_holder(worker, model) for worker, model in here],
        "too_large": [
            {"worker": worker.name, "reason": reason}
            for worker in at.workers
            if (reason := worker.refusal(spec.id)) is not None
        ],
    }


def _holder(worker: Worker, model: Mapping[str, Any]) -> dict[str, Any]:
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
