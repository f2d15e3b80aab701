"""Which queue a job goes to."""

from __future__ import annotations

import pytest

from catalog.terms import Lane
from tasks.queues import (
    SWEEP_QUEUE,
    TYPICAL_MS,
    UPPER_MS,
    Bucket,
    bucket_of,
    queue_name,
    queue_names,
    split,
)


@pytest.mark.parametrize(
    ("cost_ms", "bucket"),
    [
        (0.0, Bucket.XS),
        (4.999, Bucket.XS),
        (5.0, Bucket.S),
        (50.0, Bucket.M),
        (499.9, Bucket.M),
        (500.0, Bucket.L),
        (5_000.0, Bucket.XL),
        (1e12, Bucket.XL),
        (float("inf"), Bucket.XL),
    ],
)
def test_a_cost_belongs_to_the_bucket_that_holds_it(cost_ms: float, bucket: Bucket) -> None:
    assert bucket_of(cost_ms) is bucket


def test_what_is_typical_of_a_bucket_is_in_it() -> None:
    assert all(bucket_of(typical) is bucket for bucket, typical in TYPICAL_MS.items())
    assert set(TYPICAL_MS) == set(UPPER_MS) == set(Bucket)


def test_queues_are_named_and_found_again() -> None:
    assert queue_name(Lane.BULK, Bucket.XL) == "bulk.xl"
    for name in queue_names():
        assert queue_name(*split(name)) == name


def test_the_interactive_lane_comes_first_and_cheap_work_before_dear() -> None:
    assert queue_names()[:3] == ["interactive.xs", "interactive.s", "interactive.m"]
    assert queue_names()[5] == "bulk.xs"


@pytest.mark.parametrize("name", [SWEEP_QUEUE, "celery", "bulk", "bulk.huge", "", "bulk.xs.more"])
def test_a_queue_that_is_not_a_jobs_queue_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid"):
        split(name)
