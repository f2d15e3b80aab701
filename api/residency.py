"""What is on which device, from the workers' heartbeats. Pure; a beat that lacks a part tells nothing of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from api.presence import Worker

PRESENT_FIRST = ("resident", "loading", "leaving", "parked", "failed", "absent")
"""The states of a model on a worker, the one nearest to serving first. Of several workers the first one counts."""

_MEMORY = ("budget", "weights", "lent", "total", "free", "others", "foreign", "host", "host_budget")


def worker_object(worker: Worker, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """One worker of a reply, with those of its models that are wanted."""
    return {
        "name": worker.name,
        "object": "worker",
        "device": worker.device,
        "hardware": worker.hardware,
        "beat_age_s": round(worker.age_s, 3),
        "started_at": moment(worker.started),
        "lost": worker.lost,
        "held": worker.held,
        "waiting": worker.waiting,
        "running": worker.running,
        "sequences": worker.sequences,
        "memory": {name: worker.ledger.get(name) for name in _MEMORY},
        "models": [resident_object(model) for model in worker.models if wanted(str(model.get("key", "")))],
        "too_large": {model: reason for model, reason in worker.too_large.items() if wanted(model)},
    }


def resident_object(model: Mapping[str, Any]) -> dict[str, Any]:
    """One model on one worker."""
    gone = model.get("departure")
    return {
        "model": str(model.get("key", "")),
        "state": str(model.get("state", "")),
        "bytes": model_bytes(model) | {"estimate": whole(model.get("estimate"))},
        "leases": whole(model.get("leases")),
        "pinned": bool(model.get("pinned")),
        "waiting": whole(model.get("waiting")),
        "last_used": moment(model.get("last_used")),
        "loads": {
            "count": whole(model.get("loads")),
            "last_s": model.get("load_s") or None,
            "running_s": model.get("loading_s"),
        },
        "restores": {"count": whole(model.get("restores")), "last_s": model.get("restore_s") or None},
        "drops": {"count": sum((model.get("dropped") or {}).values()), "by_reason": dict(model.get("dropped") or {})},
        "evictions": {
            "count": whole(model.get("evictions")),
            "by_reason": dict(model.get("evicted") or {}),
            "last": None
            if not gone
            else {"at": moment(gone.get("at")), "reason": str(gone.get("reason", "")), "for_model": gone.get("by")},
        },
        "retry_at": moment(model.get("retry_at")),
        "comes_at": moment(model.get("comes_at")),
        "last_error": model.get("last_error"),
        "work": _work(model.get("work")),
    }


def model_bytes(model: Mapping[str, Any]) -> dict[str, int]:
    """What a model takes on one worker."""
    return {
        "weights": whole(model.get("bytes")),
        "activations": whole(model.get("activations")),
        "host": whole(model.get("host_bytes")),
    }


def summed(models: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How a model stands over all workers and profiles: its best state, and the sums of its bytes and its queue."""
    states = {str(model.get("state", "")) for model in models}
    sums = {"weights": 0, "activations": 0, "host": 0}
    for model in models:
        for name, size in model_bytes(model).items():
            sums[name] += size
    return {
        "state": next((state for state in PRESENT_FIRST if state in states), "absent"),
        "bytes": sums,
        "waiting": sum(whole(model.get("waiting")) for model in models),
    }


def moment(unix_s: float | None) -> datetime | None:
    """A moment of a heartbeat as a time in UTC; None for never."""
    return None if unix_s is None or not math.isfinite(unix_s) else datetime.fromtimestamp(unix_s, UTC)


def whole(value: Any) -> int:
    """A count or size of a heartbeat; 0 for one that is not told."""
    return int(value or 0)


def _work(work: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not work:
        return None
    return {
        "batches": whole(work.get("passes")),
        "items": whole(work.get("items")),
        "real_tokens": whole(work.get("real_tokens")),
        "padded_tokens": whole(work.get("padded_tokens")),
        "seconds": float(work.get("seconds") or 0.0),
        "predicted_seconds": float(work.get("predicted_s") or 0.0),
    }
