"""The fair shares that the benchmark measures, at a size for every run of the tests."""

from __future__ import annotations

import random

from tests.bench.cases.fairness import BATCH_MS, COST, LONG, long_wait, single_wait


def test_a_long_item_under_a_flood_of_short_ones_waits_at_most_twice_its_fair_share() -> None:
    fair_s = 2 * COST.batch(1, LONG) / 1000
    assert long_wait(1, random.Random(1), flood_s=60.0) <= 2 * fair_s


def test_one_job_beside_anothers_thousand_waits_for_a_few_batches() -> None:
    assert single_wait(1000) * 1000 <= 3 * BATCH_MS
