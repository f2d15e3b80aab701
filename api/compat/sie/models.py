"""GET /v1/models and /v1/models/{id} as the peer's client reads them. The models are those of the native replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from api.media import Media, dumps
from api.model_objects import CREATED, find_model, holders, owner, workers_now
from api.presence import FAILED, Worker
from api.residency import summed
from api.services import services
from catalog.loader import DEFAULT
from catalog.schema import GenerateFacts, InputKind, Spec
from tasks.errors import ModelTooLarge

STATES: Mapping[str, str] = {
    "resident": "loaded",
    "loading": "loading",
    "leaving": "unloading",
    "parked": "available",
    "failed": "failed",
    "absent": "available",
}
"""The peer's word for each of ours. A model in host memory is one that a request would bring back."""

_INPUTS: Sequence[InputKind] = ("text", "image", "audio", "document")
"""What the peer's items hold, besides conversations, which go by another route."""

_PROFILE = {
    "identity": None,
    "remote_contract_sha256": None,
    "remote_execution_sha256": None,
    "runtime_instance_id": None,
}


async def listing(request: Request) -> Response:
    """Every model of the catalog."""
    it = services(request)
    workers = await workers_now(it)
    body = {"models": [model_info(spec, workers) for spec in it.catalog.specs]}
    return Response(dumps(body), media_type=Media.JSON.value)


async def one(request: Request) -> Response:
    """One model."""
    it = services(request)
    choice = await find_model(it, request.path_params["id"])
    return Response(dumps(model_info(choice.spec, await workers_now(it))), media_type=Media.JSON.value)


def model_info(spec: Spec, workers: Sequence[Worker]) -> dict[str, Any]:
    """The peer's `ModelInfo`, with the fields of OpenAI's that its gateway adds."""
    here = [model for _, model in holders(spec, workers)]
    state = STATES[summed(here)["state"]]
    return {
        "name": spec.id,
        "inputs": [kind for kind in _INPUTS if kind in spec.inputs],
        "outputs": outputs(spec),
        "dims": dims(spec),
        "loaded": state == "loaded",
        "state": state,
        "last_error": last_error(here) if state == "failed" else None,
        "max_sequence_length": spec.max_length if spec.unit == "tokens" else None,
        "profiles": {name: {"is_default": name == DEFAULT, **_PROFILE} for name in (DEFAULT, *sorted(spec.profiles))},
        "revision": spec.source.revision,
        "capabilities": None if spec.tasks.generate is None else _capabilities(spec, spec.tasks.generate),
        "routing": {"policy": None, "upstream_kind": None},
        "aliases": [],
        "id": spec.id,
        "object": "model",
        "created": CREATED,
        "owned_by": owner(spec.id),
    }


def outputs(spec: Spec) -> list[str]:
    """What the model gives, in the peer's words."""
    encode = spec.tasks.encode
    others = {"score": spec.tasks.score, "json": spec.tasks.extract, "text": spec.tasks.generate}
    return [*(encode.outputs if encode else ()), *(name for name, facts in others.items() if facts is not None)]


def dims(spec: Spec) -> dict[str, int]:
    """How long the vectors of each output are."""
    encode = spec.tasks.encode
    if encode is None:
        return {}
    widths = {"dense": encode.dims, "sparse": encode.sparse_dims, "multivector": encode.token_dims}
    return {output: width for output in encode.outputs if (width := widths[output])}


def last_error(models: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Why the model could not be loaded, by the worker that was heard first; None if none says."""
    failed = [model for model in models if model.get("state") == FAILED and model.get("last_error")]
    if not failed:
        return None
    error = failed[0]["last_error"]
    return {
        "code": "OOM" if error["code"] == ModelTooLarge.code else str(error["code"]).upper(),
        "message": error["message"],
        "attempts": len(failed),
        "permanent": all(model.get("retry_at") is None for model in failed),
    }


def _capabilities(spec: Spec, facts: GenerateFacts) -> dict[str, Any]:
    return {
        "streaming": True,
        "grammar": ["json_schema", "regex", "ebnf"] if facts.grammar else [],
        "tools": facts.tools,
        "lora_adapters": sorted(spec.loras),
    }
