"""What the workers' heartbeats say, as metrics. Totals count since a worker's engine child started."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from api.presence import Worker

OF_WORKER = ("worker", "device")
OF_MODEL = ("worker", "model")

_Value = float | int | bool | None
_Read = Callable[[Worker], _Value]
_Look = Callable[[Mapping[str, Any]], _Value]

_GAUGES: Sequence[tuple[str, str, _Read]] = (
    ("heartbeat_age_seconds", "Age of the last heartbeat", lambda w: w.age_s),
    ("start_time_seconds", "When the engine child started, in Unix seconds", lambda w: w.started),
    ("lost", "1 where the device cannot compute any more", lambda w: w.lost),
    ("jobs_held", "Jobs that the worker holds", lambda w: w.held),
    ("items_waiting", "Items that wait for the device", lambda w: w.waiting),
    ("batches_running", "Batches on the device", lambda w: w.running),
    ("sequences", "Sequences that are being generated", lambda w: w.sequences),
    ("batch_limit_items", "The most items that a batch may hold", lambda w: w.batch_limit or None),
    ("padding_ratio", "Padded share of the tokens computed", lambda w: padding(w.stats)),
)

_MEMORY = (
    ("budget", "Bytes that models may take"),
    ("weights", "Bytes that weights take"),
    ("lent", "Bytes lent to running batches"),
    ("total", "Bytes of the device"),
    ("free", "Bytes of the device that are free for anybody"),
    ("others", "Bytes that other workers of ours hold on the device"),
    ("foreign", "Bytes used on the device by no worker of ours"),
    ("host", "Bytes that models take in host memory"),
    ("host_budget", "Bytes that models may take in host memory"),
)

_TOTALS: Sequence[tuple[str, str, _Read]] = (
    ("batches", "Batches that ran", lambda w: w.stats.get("batches")),
    ("items", "Items computed", lambda w: w.stats.get("items")),
    ("real_tokens", "Tokens of the items computed", lambda w: w.stats.get("real_tokens")),
    ("padded_tokens", "Tokens computed, padding included", lambda w: w.stats.get("padded_tokens")),
    (
        "device_seconds",
        "Seconds of computing, summed over batches that ran side by side",
        lambda w: w.stats.get("device_s"),
    ),
    ("missed_heartbeats", "Heartbeats that Valkey did not take", lambda w: w.missed.get("beats")),
    ("broker_down_seconds", "Seconds in which no heartbeat reached Valkey", lambda w: w.missed.get("seconds")),
)

_MODEL_GAUGES: Sequence[tuple[str, str, _Look]] = (
    ("weights_bytes", "Bytes that the weights take on the device", lambda m: m.get("bytes")),
    ("estimate_bytes", "Bytes that the weights were expected to take", lambda m: m.get("estimate")),
    ("activations_bytes", "Bytes that running batches have been lent", lambda m: m.get("activations") or 0),
    ("host_bytes", "Bytes in host memory", lambda m: m.get("host_bytes") or 0),
    ("leases", "Batches that run on it", lambda m: m.get("leases")),
    ("items_waiting", "Items that wait for it on this worker", lambda m: m.get("waiting")),
    ("last_load_seconds", "What its last load from files took", lambda m: m.get("load_s") or None),
    ("last_restore_seconds", "What its last return from host memory took", lambda m: m.get("restore_s") or None),
)

_MODEL_TOTALS: Sequence[tuple[str, str, _Look]] = (
    ("loads", "Loads from files", lambda m: m.get("loads")),
    ("restores", "Returns from host memory", lambda m: m.get("restores") or 0),
    ("batches", "Batches of the model", lambda m: _work(m, "passes")),
    ("items", "Items of the model", lambda m: _work(m, "items")),
    ("device_seconds", "What its batches took", lambda m: _work(m, "seconds")),
    ("predicted_seconds", "What its batches were predicted to take", lambda m: _work(m, "predicted_s")),
)


def worker_families(workers: Sequence[Worker]) -> list[Metric]:
    """The metrics of the live workers, of their models, and of the jobs and batches that they saw."""
    return [
        GaugeMetricFamily("roost_workers", "Live workers", value=len(workers)),
        *_of_workers(workers),
        *_of_models(workers),
        *_of_jobs(workers),
    ]


def padding(stats: Mapping[str, float]) -> float | None:
    """The share of computed tokens that were padding; None before any was computed."""
    padded = float(stats.get("padded_tokens") or 0)
    return 1.0 - float(stats.get("real_tokens") or 0) / padded if padded > 0 else None


def _of_workers(workers: Sequence[Worker]) -> Iterable[Metric]:
    for name, text, read in _GAUGES:
        yield _filled(GaugeMetricFamily(f"roost_worker_{name}", text, labels=OF_WORKER), workers, read)
    for part, text in _MEMORY:
        family = GaugeMetricFamily(f"roost_worker_{part}_bytes", text, labels=OF_WORKER)
        yield _filled(family, workers, lambda w, part=part: w.ledger.get(part))  # type: ignore[misc] # bound here
    for name, text, read in _TOTALS:
        yield _filled(CounterMetricFamily(f"roost_worker_{name}", text, labels=OF_WORKER), workers, read)
    models = GaugeMetricFamily("roost_worker_models", "Models by state", labels=[*OF_WORKER, "state"])
    lost = CounterMetricFamily(
        "roost_worker_children_lost",
        "Engine children that ended: died, device (it was lost), limit (a batch or load ran over it), start",
        labels=[*OF_WORKER, "fate"],
    )
    for worker in workers:
        states = [str(model.get("state", "")) for model in worker.models]
        for state in ("resident", *sorted(set(states) - {"resident"})):
            models.add_metric([worker.name, worker.device, state], states.count(state))
        for fate, count in worker.children_lost.items():
            lost.add_metric([worker.name, worker.device, fate], count)
    yield models
    yield lost


def _filled(family: Any, workers: Sequence[Worker], read: _Read) -> Metric:
    for worker in workers:
        number = read(worker)
        if number is not None:
            family.add_metric([worker.name, worker.device], float(number))
    metric: Metric = family
    return metric


def _of_models(workers: Sequence[Worker]) -> Iterable[Metric]:
    for kind, rows in ((GaugeMetricFamily, _MODEL_GAUGES), (CounterMetricFamily, _MODEL_TOTALS)):
        for name, text, look in rows:
            family = kind(f"roost_model_{name}", text, labels=OF_MODEL)
            for worker, model in _models(workers):
                number = look(model)
                if number is not None:
                    family.add_metric([worker.name, str(model["key"])], float(number))
            yield family
    evictions = CounterMetricFamily(
        "roost_model_evictions", "Times that the model left the device", labels=[*OF_MODEL, "reason"]
    )
    ratios = HistogramMetricFamily(
        "roost_model_cost_ratio", "Batches by the time they took over the time predicted", labels=OF_MODEL
    )
    for worker, model in _models(workers):
        for reason, count in (model.get("evicted") or {}).items():
            evictions.add_metric([worker.name, str(model["key"]), reason], count)
        work = model.get("work") or {}
        counts = work.get("ratios")
        if counts and len(counts) == len(worker.ratio_le) + 1:
            labels = [worker.name, str(model["key"])]
            ratios.add_metric(labels, _buckets(worker.ratio_le, counts), work.get("ratio_sum"))
    yield evictions
    yield ratios


def _of_jobs(workers: Sequence[Worker]) -> Iterable[Metric]:
    for part, name, text, labels in (
        ("stages", "roost_job_stage_seconds", "Where the time of ended jobs went", ("verb", "lane", "stage")),
        ("batch_items", "roost_batch_items", "Items of a batch", ("verb",)),
        ("batch_tokens", "roost_batch_tokens", "Tokens of a batch, padding included", ("verb",)),
    ):
        family = HistogramMetricFamily(name, text, labels=["worker", *labels])
        for worker in workers:
            table = worker.tally.get(part) or {}
            for *values, counts, total in table.get("of") or ():
                family.add_metric([worker.name, *values], _buckets(table["le"], counts), total)
        yield family
    ended = CounterMetricFamily(
        "roost_jobs_ended", "Jobs whose end a worker wrote", labels=["worker", "verb", "lane", "state"]
    )
    for worker in workers:
        for *values, count in worker.tally.get("ended") or ():
            ended.add_metric([worker.name, *values], count)
    yield ended


def _models(workers: Sequence[Worker]) -> Iterable[tuple[Worker, Mapping[str, Any]]]:
    return ((worker, model) for worker in workers for model in worker.models if model.get("key"))


def _work(model: Mapping[str, Any], name: str) -> float | None:
    work = model.get("work")
    return None if not work else float(work.get(name) or 0)


def _buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Counts by class as Prometheus has them: each bucket holds those below it, too."""
    names = [*(f"{bound:g}" if bound < 1e5 else str(bound) for bound in bounds), "+Inf"]
    return list(zip(names, map(float, accumulate(counts)), strict=True))
