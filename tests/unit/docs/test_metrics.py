"""docs/operations.md names the metrics that there are, with their labels, and alerts only on those."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.core import Metric

from api.metrics import Metrics
from api.presence import Worker
from api.worker_metrics import worker_families

OF_SCRAPE = {
    "roost_up": {"part"},
    "roost_open_jobs": {"state", "lane"},
    "roost_queue_messages": {"queue"},
    "roost_model_messages": {"queue", "model"},
    "roost_webhook_attempts_total": {"outcome"},
    "roost_webhooks_pending": set(),
    "roost_webhooks_oldest_due_seconds": set(),
}
"""What a scrape reads from the database and the broker: an integration test sees them."""

_ENDINGS = re.compile(r"_(bucket|count|sum)$")


@pytest.fixture(scope="module")
def page() -> str:
    return (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def listed(page: str) -> dict[str, set[str]]:
    table = page.partition("<!-- metrics:")[2].partition("<!-- end of metrics -->")[0]
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", table, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def worker() -> Worker:
    """One that tells everything."""
    model = {
        "key": "m",
        "state": "resident",
        **dict.fromkeys(("bytes", "estimate", "leases", "waiting", "loads", "load_s", "restores", "restore_s"), 1),
        "evicted": {"room": 1},
        "work": {"passes": 1, "items": 1, "seconds": 1.0, "predicted_s": 1.0, "ratios": [1, 0]},
    }
    memory = ("budget", "weights", "lent", "total", "free", "others", "foreign", "host", "host_budget")
    return Worker(
        name="w",
        age_s=0.0,
        device="cpu",
        models=[model],
        ledger=dict.fromkeys(memory, 1),
        stats=dict.fromkeys(("batches", "items", "real_tokens", "padded_tokens", "device_s"), 1),
        started=1.0,
        children_lost={"died": 1},
        missed={"beats": 1, "seconds": 2.0},
        batch_limit=256,
        ratio_le=[1.0],
        tally={
            "stages": {"le": [1.0], "of": [["encode", "bulk", "load", [1, 0], 0.5]]},
            "batch_items": {"le": [1], "of": [["encode", [1, 0], 1.0]]},
            "batch_tokens": {"le": [64], "of": [["encode", [1, 0], 9.0]]},
            "ended": [["encode", "bulk", "succeeded", 1]],
        },
    )


def told(families: list[Metric]) -> dict[str, set[str]]:
    return {
        (family.name if family.type == "histogram" else sample.name): set(sample.labels) - {"le"}
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def counters() -> dict[str, set[str]]:
    metrics = Metrics()
    metrics.requests.labels("r", "GET", "200").inc()
    metrics.seconds.labels("r").observe(1.0)
    metrics.submissions.labels("encode", "bulk", "stored").inc()
    metrics.items.labels("encode").inc()
    metrics.waits.labels("done").inc()
    return told(list(metrics.registry.collect()))


def test_every_metric_is_listed_with_its_labels_and_no_other(listed: dict[str, set[str]]) -> None:
    assert listed == counters() | told(worker_families([worker()])) | OF_SCRAPE


def test_names_follow_the_conventions(listed: dict[str, set[str]]) -> None:
    assert all(re.fullmatch(r"roost_[a-z_]+", name) for name in listed)
    families = [*Metrics().registry.collect(), *worker_families([worker()])]
    totals = {sample.name for family in families if family.type == "counter" for sample in family.samples}
    assert all(name.endswith(("_total", "_created")) for name in totals)


def test_the_alerts_are_on_metrics_that_there_are(page: str, listed: dict[str, set[str]]) -> None:
    [block] = [text for text in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if "alert:" in text]
    rules: list[dict[str, Any]] = yaml.safe_load(block)["groups"][0]["rules"]
    assert len(rules) > 8
    for rule in rules:
        named = {_ENDINGS.sub("", name) for name in re.findall(r"roost_\w+", rule["expr"])}
        assert named, rule
        assert named <= set(listed), rule
