"""What a scrape tells of the workers, from their heartbeats."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from api.presence import Worker
from api.worker_metrics import padding, worker_families

LE = [0.1, 1.0]


def worker(**changes: Any) -> Worker:
    values: dict[str, Any] = {
        "name": "w1",
        "age_s": 1.5,
        "device": "cuda:1",
        "models": [
            {
                "key": "org/m",
                "state": "resident",
                "bytes": 5,
                "estimate": 4,
                "leases": 1,
                "loads": 2,
                "evicted": {"room": 3},
                "load_s": 0.5,
                "work": {
                    "passes": 4,
                    "items": 9,
                    "seconds": 0.5,
                    "predicted_s": 0.4,
                    "ratios": [1, 3, 0],
                    "ratio_sum": 4.25,
                },
            },
            {"key": "org/n", "state": "absent", "load_s": 0.0},
        ],
        "ledger": {"budget": 100, "weights": 5, "lent": 2, "foreign": 7},
        "stats": {"batches": 2, "items": 6, "real_tokens": 90, "padded_tokens": 120, "device_s": 0.5},
        "ratio_le": [0.8, 1.25],
        "children_lost": {"device": 2},
        "missed": {"beats": 3, "seconds": 6.5},
        "tally": {
            "stages": {"le": LE, "of": [["encode", "bulk", "load", [2, 1, 1], 7.5]]},
            "batch_items": {"le": [1, 2], "of": [["encode", [0, 1, 1], 9.0]]},
            "ended": [["encode", "bulk", "succeeded", 4]],
        },
    }
    return Worker(**{**values, **changes})


class Samples(dict[tuple[str, frozenset[str]], float]):
    """Values by name and label values, in whatever order."""

    def of(self, name: str, *labels: str) -> float:
        return self[name, frozenset(labels)]

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self}


def samples(*workers: Worker) -> Samples:
    """What Prometheus reads, once through its text and back."""
    return Samples(
        {
            (sample.name, frozenset(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text(worker_families(workers)))
            for sample in family.samples
        }
    )


def text(families: list[Metric]) -> str:
    class Told(Collector):
        def collect(self) -> list[Metric]:
            return families

    registry = CollectorRegistry()
    registry.register(Told())
    return generate_latest(registry).decode()


def test_padding_is_the_share_of_tokens_computed_in_vain() -> None:
    assert padding({"real_tokens": 90, "padded_tokens": 120}) == pytest.approx(0.25)
    assert padding({"real_tokens": 0, "padded_tokens": 0}) is None
    assert padding({}) is None


def test_a_device_tells_its_memory_and_its_totals() -> None:
    found = samples(worker())
    assert found.of("roost_workers") == 1.0
    assert found.of("roost_worker_padding_ratio", "w1", "cuda:1") == pytest.approx(0.25)
    assert found.of("roost_worker_weights_bytes", "w1", "cuda:1") == 5.0
    assert found.of("roost_worker_foreign_bytes", "w1", "cuda:1") == 7.0
    assert found.of("roost_worker_padded_tokens_total", "w1", "cuda:1") == 120.0
    assert found.of("roost_worker_device_seconds_total", "w1", "cuda:1") == 0.5
    assert found.of("roost_worker_models", "w1", "cuda:1", "resident") == 1.0


def test_lost_children_and_time_without_the_broker_are_told() -> None:
    found = samples(worker())
    assert found.of("roost_worker_children_lost_total", "w1", "cuda:1", "device") == 2.0
    assert found.of("roost_worker_missed_heartbeats_total", "w1", "cuda:1") == 3.0
    assert found.of("roost_worker_broker_down_seconds_total", "w1", "cuda:1") == 6.5


def test_what_a_worker_does_not_tell_has_no_sample() -> None:
    names = samples(Worker("w", 0.0, "cpu")).names
    assert "roost_worker_padding_ratio" not in names
    assert "roost_worker_budget_bytes" not in names


def test_each_model_tells_its_bytes_loads_and_evictions() -> None:
    found = samples(worker())
    assert found.of("roost_model_weights_bytes", "w1", "org/m") == 5.0
    assert found.of("roost_model_loads_total", "w1", "org/m") == 2.0
    assert found.of("roost_model_evictions_total", "w1", "org/m", "room") == 3.0
    assert found.of("roost_model_last_load_seconds", "w1", "org/m") == 0.5
    assert ("roost_model_last_load_seconds", frozenset({"w1", "org/n"})) not in found


def test_predicted_against_actual_is_a_histogram_of_each_model() -> None:
    found = samples(worker())
    buckets = [found.of("roost_model_cost_ratio_bucket", "w1", "org/m", le) for le in ("0.8", "1.25", "+Inf")]
    assert buckets == [1.0, 4.0, 4.0]
    assert found.of("roost_model_cost_ratio_count", "w1", "org/m") == 4.0
    assert found.of("roost_model_cost_ratio_sum", "w1", "org/m") == 4.25


def test_the_stages_of_jobs_are_histograms_whose_buckets_hold_those_below() -> None:
    found = samples(worker())
    key = ("w1", "encode", "bulk", "load")
    assert [found.of("roost_job_stage_seconds_bucket", *key, le) for le in ("0.1", "1", "+Inf")] == [2.0, 3.0, 4.0]
    assert found.of("roost_job_stage_seconds_sum", *key) == 7.5
    assert found.of("roost_jobs_ended_total", "w1", "encode", "bulk", "succeeded") == 4.0


def test_two_workers_keep_their_series_apart() -> None:
    """Summed here, a worker that goes would look to Prometheus like a counter that starts anew."""
    found = samples(worker(), worker(name="w2"))
    assert (
        found.of("roost_batch_items_count", "w1", "encode")
        == found.of("roost_batch_items_count", "w2", "encode")
        == 2.0
    )


def test_counts_of_other_bounds_than_told_are_passed_over() -> None:
    assert "roost_model_cost_ratio_bucket" not in samples(worker(ratio_le=[1.0])).names
