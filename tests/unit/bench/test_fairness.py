"""The fair shares that the benchmark measures, at a size for every run of the tests."""

from __future__ import annotations

import random

import pytest

from tests.bench.cases.fairness import BATCH_MS, CARD, COST, LONG, interactive_waits, long_wait, single_wait
from tests.bench.figures import percentile


def test_a_long_item_under_a_flood_of_short_ones_waits_at_most_twice_its_fair_share() -> None:
    fair_s = 2 * COST.batch(1, LONG) / 1000
    assert long_wait(1, random.Random(1), flood_s=60.0) <= 2 * fair_s


def test_one_job_beside_anothers_thousand_waits_for_a_few_batches() -> None:
    assert single_wait(1000) * 1000 <= 3 * BATCH_MS


@pytest.mark.parametrize("load", [0.5, 0.9])
def test_bulk_work_at_full_load_adds_at_most_a_quarter_to_the_interactive_p99(load: float) -> None:
    alone = interactive_waits(load, 120.0, None, 1)
    beside = interactive_waits(load, 120.0, CARD.batch_tokens, 1)
    assert percentile(beside, 99) <= 1.25 * percentile(alone, 99)
