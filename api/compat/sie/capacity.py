"""The workers as the peer tells of its cluster: for `/health` and for those who watch. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from api.compat.sie.models import STATES
from api.model_objects import LOADED
from api.presence import Worker
from api.residency import summed, whole
from api.schemas import Reply

BUNDLE = "default"
"""All workers serve all models, which is one bundle to the peer."""


class SieWorker(Reply):
    """One worker as of its last heartbeat. Sizes are bytes."""

    name: str
    url: Annotated[str, Field(description="Always empty: nobody calls a worker")]
    gpu: Annotated[str, Field(description="The card's name, such as `h200`; `cpu` where there is none")]
    gpu_count: int
    ready_gpu_slots: int
    healthy: bool
    queue_depth: Annotated[int, Field(description="Items that wait for its device")]
    pending_cost: Annotated[int, Field(description="Always 0: it is not told")]
    inflight_batches: int
    loaded_models: list[str]
    memory_used_bytes: int
    memory_total_bytes: int
    bundle: str
    bundle_config_hash: str


class SieCluster(Reply):
    """All workers together."""

    worker_count: Annotated[int, Field(description="Those whose device works")]
    gpu_count: int
    models_loaded: int
    total_qps: Annotated[float, Field(description="Items a second, on average since each worker started")]


class SieModelSummary(Reply):
    """A model that was ever asked for."""

    name: str
    state: str
    worker_count: Annotated[int, Field(description="Workers that have it loaded")]
    gpu_types: list[str]
    total_queue_depth: int


class SieHealth(Reply):
    """The state of the service."""

    status: Literal["healthy", "degraded", "no_workers"]
    type: Literal["gateway"]
    cluster: SieCluster
    configured_gpu_types: Annotated[list[str], Field(description="Those of the live workers: no others are known")]
    live_gpu_types: list[str]
    workers: list[SieWorker]
    models: list[SieModelSummary]


def gpu_of(worker: Worker) -> str:
    """What its device is called: `h200` of `cuda:nvidia-h200`, `cpu` of any processor."""
    kind, _, name = worker.hardware.partition(":")
    return name.removeprefix("nvidia-") if kind == "cuda" and name else kind


def gpu_types(workers: Sequence[Worker]) -> list[str]:
    """The kinds of device that work now."""
    return sorted({gpu_of(worker) for worker in workers if not worker.lost})


def worker_info(worker: Worker) -> dict[str, Any]:
    """The peer's `WorkerInfo`."""
    total, free = (whole(worker.ledger.get(name)) for name in ("total", "free"))
    on_cards = 0 if worker.hardware.startswith("cpu") else 1
    return {
        "name": worker.name,
        "url": "",
        "gpu": gpu_of(worker),
        "gpu_count": on_cards,
        "ready_gpu_slots": 0 if worker.lost else on_cards,
        "healthy": not worker.lost,
        "queue_depth": worker.waiting,
        "pending_cost": 0,
        "inflight_batches": worker.running,
        "loaded_models": sorted(str(model["key"]) for model in worker.models if model.get("state") == LOADED),
        "memory_used_bytes": max(0, total - free),
        "memory_total_bytes": total,
        "bundle": BUNDLE,
        "bundle_config_hash": "",
    }


def cluster_status(workers: Sequence[Worker], now: float) -> dict[str, Any]:
    """The peer's `ClusterStatusMessage` without its time, at Unix second `now`."""
    told = [worker_info(worker) for worker in workers]
    by_name: dict[str, list[tuple[Worker, Mapping[str, Any]]]] = {}
    for worker in workers:
        for model in worker.models:
            by_name.setdefault(str(model.get("key", "")), []).append((worker, model))
    return {
        "cluster": {
            "worker_count": sum(one["healthy"] for one in told),
            "gpu_count": sum(one["gpu_count"] for one in told),
            "models_loaded": len({name for one in told for name in one["loaded_models"]}),
            "total_qps": round(sum(_rate(worker, now) for worker in workers), 3),
        },
        "workers": told,
        "models": [_summary(name, held) for name, held in sorted(by_name.items())],
    }


def health(workers: Sequence[Worker], now: float) -> dict[str, Any]:
    """The body of `/health`."""
    able = [worker for worker in workers if not worker.lost]
    kinds = gpu_types(workers)
    status = "no_workers" if not able else "healthy" if len(able) == len(workers) else "degraded"
    return {
        "status": status,
        "type": "gateway",
        "configured_gpu_types": kinds,
        "live_gpu_types": kinds,
        **cluster_status(workers, now),
    }


def _rate(worker: Worker, now: float) -> float:
    lived = 0.0 if worker.started is None else now - worker.started
    return whole(worker.stats.get("items")) / lived if lived > 0 else 0.0


def _summary(name: str, held: Sequence[tuple[Worker, Mapping[str, Any]]]) -> dict[str, Any]:
    total = summed([model for _, model in held])
    loaded = [worker for worker, model in held if model.get("state") == LOADED]
    return {
        "name": name,
        "state": STATES[total["state"]],
        "worker_count": len(loaded),
        "gpu_types": gpu_types(loaded),
        "total_queue_depth": total["waiting"],
    }
