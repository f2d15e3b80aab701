from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.core import Metric

from api.webhook_metrics import attempt_families, pending_families

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def values(families: list[Metric]) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("outcome", "")): sample.value
        for family in families
        for sample in family.samples
    }


def test_every_outcome_has_a_series_before_its_first_attempt() -> None:
    name = "roost_webhook_attempts_total"
    assert values(attempt_families({"refused": 3, "else": 9})) == {
        (name, "delivered"): 0,
        (name, "refused"): 3,
        (name, "unreachable"): 0,
    }


@pytest.mark.parametrize(
    ("oldest", "late"), [(None, 0.0), (NOW + timedelta(hours=2), 0.0), (NOW - timedelta(seconds=90), 90.0)]
)
def test_what_is_due_later_is_not_late(oldest: datetime | None, late: float) -> None:
    assert values(pending_families(4, oldest, NOW)) == {
        ("roost_webhooks_pending", ""): 4,
        ("roost_webhooks_oldest_due_seconds", ""): late,
    }
