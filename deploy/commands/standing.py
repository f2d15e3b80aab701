"""How a server stands: its workers, the models on them, what waits. Pure, from what the server tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Group

from deploy.commands.showing import Row, lines, size, table

_WORKER = ("worker", "device", "beat", "held", "waiting", "running", "weights", "budget", "free")
_MODEL = ("model", "worker", "state", "weights", "host", "waiting", "queued", "loads", "evictions")
_GONE = frozenset({"absent"})


def standing(workers: Sequence[Mapping[str, Any]], metrics: str) -> dict[str, Any]:
    """What `roost top` shows, as data: `workers`, `models`, `queues` and `open_jobs`."""
    counts = _counts(metrics)
    queued = _summed(counts, "roost_model_messages", "model")
    models = [
        {
            "model": model["model"],
            "worker": worker["name"],
            "state": model["state"],
            "bytes": model["bytes"],
            "waiting": model["waiting"],
            "queued": queued.pop(model["model"], 0),
            "loads": model["loads"]["count"],
            "evictions": model["evictions"]["count"],
        }
        for worker in workers
        for model in worker["models"]
    ]
    # What no worker has met yet has a queue all the same.
    models += [
        {
            "model": name,
            "worker": None,
            "state": "absent",
            "bytes": None,
            "waiting": 0,
            "queued": count,
            "loads": 0,
            "evictions": 0,
        }
        for name, count in sorted(queued.items())
        if count
    ]
    told = ("name", "device", "beat_age_s", "lost", "held", "waiting", "running", "sequences", "memory")
    return {
        "workers": [{name: worker[name] for name in told} for worker in workers],
        "models": models,
        "queues": _summed(counts, "roost_queue_messages", "queue"),
        "open_jobs": _summed(counts, "roost_open_jobs", "state"),
    }


def drawn(found: Mapping[str, Any], note: str = "") -> Group:
    """For a terminal."""
    return Group(
        _heading(found, note),
        "",
        table(_WORKER, _workers(found)),
        "",
        table(_MODEL, _models(found)),
    )


def printed(found: Mapping[str, Any]) -> list[str]:
    """Without a terminal."""
    return [_heading(found, ""), *lines([_WORKER, *_workers(found)]), *lines([_MODEL, *_models(found)])]


def _heading(found: Mapping[str, Any], note: str) -> str:
    jobs = ", ".join(f"{count} {state}" for state, count in found["open_jobs"].items() if count)
    queues = ", ".join(f"{name} {count}" for name, count in found["queues"].items() if count)
    return f"jobs: {jobs or 'none open'}   queues: {queues or 'empty'}{f'   {note}' if note else ''}"


def _workers(found: Mapping[str, Any]) -> list[Row]:
    return [
        (
            worker["name"],
            worker["device"],
            "lost" if worker["lost"] else f"{worker['beat_age_s']:.0f}s",
            worker["held"],
            worker["waiting"],
            worker["running"],
            *(size(worker["memory"].get(part)) for part in ("weights", "budget", "free")),
        )
        for worker in found["workers"]
    ]


def _models(found: Mapping[str, Any]) -> list[Row]:
    there = [model for model in found["models"] if model["state"] not in _GONE or model["queued"] or model["waiting"]]
    return [
        (
            model["model"],
            model["worker"] or "-",
            model["state"],
            *(size((model["bytes"] or {}).get(part)) for part in ("weights", "host")),
            model["waiting"],
            model["queued"],
            model["loads"],
            model["evictions"],
        )
        for model in there
    ]


def _counts(metrics: str) -> list[tuple[str, Mapping[str, str], float]]:
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
    ]


def _summed(counts: list[tuple[str, Mapping[str, str], float]], name: str, label: str) -> dict[str, int]:
    found: Counter[str] = Counter()
    for sample, labels, value in counts:
        if sample == name:
            found[labels[label]] += int(value)
    return dict(found)
