"""Which Celery queue a job goes to. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from catalog.terms import Lane


class Bucket(StrEnum):
    """A range of predicted cost in device-milliseconds; the value after each is its upper bound, which it excludes."""

    XS = "xs"
    S = "s"
    M = "m"
    L = "l"
    XL = "xl"


UPPER_MS = {Bucket.XS: 5.0, Bucket.S: 50.0, Bucket.M: 500.0, Bucket.L: 5_000.0, Bucket.XL: float("inf")}
TYPICAL_MS = {Bucket.XS: 2.0, Bucket.S: 20.0, Bucket.M: 200.0, Bucket.L: 2_000.0, Bucket.XL: 20_000.0}
LANES = (Lane.INTERACTIVE, Lane.BULK)
SWEEP_QUEUE = "jobs.sweep"
WEBHOOK_QUEUE = "webhooks"


def bucket_of(cost_ms: float) -> Bucket:
    """The bucket of a predicted cost; a cost on a bound belongs to the dearer bucket."""
    return next(bucket for bucket, upper in UPPER_MS.items() if cost_ms < upper or bucket is Bucket.XL)


def queue_name(lane: Lane, bucket: Bucket) -> str:
    """`<lane>.<bucket>`, as Celery and Flower show it."""
    return f"{lane.value}.{bucket.value}"


def queue_names(lanes: Iterable[Lane] = LANES) -> list[str]:
    """All queues, the interactive lane first and cheap buckets before dear ones."""
    return [queue_name(lane, bucket) for lane in lanes for bucket in Bucket]


def split(queue: str) -> tuple[Lane, Bucket]:
    """Lane and bucket of a queue's name. Raises ValueError for a queue that is not one of ours."""
    lane, _, bucket = queue.partition(".")
    return Lane(lane), Bucket(bucket)
