"""What a Celery message carries, and what a job is made of before it has a row.

A message is msgpack, then base64 inside the task's one argument, and never shown by Flower. It holds inputs and options
only when they are small (`INLINE_BYTES`); otherwise the worker reads them from the rows of all its new jobs in one
query, or the inputs from the blob store. See docs/decisions for why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgpack

from catalog.terms import Lane, Verb

INLINE_BYTES = 8 * 1024
"""Inputs up to this size travel in the message, and so do options."""

TASK_NAME = "roost.run"


@dataclass(frozen=True, slots=True)
class Webhook:
    """Who is told when the job ends, named by the job itself. `inline`: a small result goes along."""

    url: str = field(repr=False)
    secret: bytes | None = field(default=None, repr=False)
    inline: bool = False


@dataclass(frozen=True, slots=True)
class Submission:
    """One accepted job. `inputs` is the msgpack of its items: a list of {id?, text, …} in the caller's order.

    `lengths` and `costs` have one entry per item. `faults` holds the items that failed already at the door, by index.
    Wall-clock times are Unix seconds. `stored` tells whether a row was committed before the message went out; when not,
    the message is a waiting sync call's only copy and the worker writes the whole row. `fence` is the delivery number
    that a commit must hold, `attempt` the number of tries so far, this one included. `checked` asks the worker to look
    at the row before it runs the job, because another copy of the message may exist. Without `keep` the inputs go when
    the job ends, and its result once it was answered. `inputs_blob` is the key of inputs too large for a row; a
    `webhook` is in no message: such a job has its row first.
    """

    id: UUID
    caller: str
    verb: Verb
    model: str
    revision: str | None
    lane: Lane
    bucket: str
    priority: int
    options: Mapping[str, Any]
    inputs: bytes
    lengths: Sequence[int]
    costs: Sequence[float]
    faults: Mapping[int, Mapping[str, Any]]
    created: float
    deadline: float | None
    retention_s: int
    tags: Sequence[str] = ()
    idempotency_key: str | None = None
    body_hash: bytes | None = None
    reply_to: str | None = None
    stored: bool = True
    checked: bool = False
    fence: int = 1
    attempt: int = 1
    sent: float = 0.0
    keep: bool = True
    inputs_blob: str | None = None
    webhook: Webhook | None = None

    @property
    def items(self) -> int:
        """How many items the job has."""
        return len(self.lengths)

    @property
    def cost_ms(self) -> float:
        """Predicted device-milliseconds of the whole job."""
        return float(sum(self.costs))


_FIELDS = tuple(Submission.__dataclass_fields__)


def travels(job: Submission) -> bool:
    """Whether a message may hold all of the job."""
    return len(job.inputs) <= INLINE_BYTES and _size(job.options) <= INLINE_BYTES


def _size(options: Mapping[str, Any]) -> int:
    # Of a few plain values nobody need count the bytes.
    if len(options) <= 8 and all(isinstance(value, (int, float, type(None))) for value in options.values()):
        return 0
    return len(msgpack.packb(options, default=str))


def pack(job: Submission) -> bytes:
    """The message of a job. Of one that is large it leaves inputs and options out, if the row has them."""
    values: dict[str, Any] = {name: getattr(job, name) for name in _FIELDS}
    values["id"] = job.id.bytes
    del values["webhook"]
    if job.stored and not travels(job):
        values |= {"inputs": b"", "options": {}, "inputs_blob": None}
    if not job.stored:
        return bytes(msgpack.packb(values))
    for name in ("tags", "idempotency_key", "body_hash"):
        del values[name]
    return bytes(msgpack.packb(values))


def unpack(data: bytes) -> Submission:
    """The job of a message. Raises ValueError on bytes that are no message of ours."""
    try:
        values = msgpack.unpackb(data, strict_map_key=False)
        values["id"] = UUID(bytes=values["id"])
        values["verb"] = Verb(values["verb"])
        values["lane"] = Lane(values["lane"])
        return Submission(**values)
    except (KeyError, TypeError, ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"not a Roost message: {type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class Completion:
    """How a job ended, ready to be committed: the whole of what the worker writes.

    `result` is the msgpack of the per-item outcomes (see `tasks.results`); one too large for a row is in the blob
    store, under the key `result_blob`. The commit applies only if the row is still open and its fence is not newer than
    `submission.fence`. State `queued` with a `run_at` (Unix seconds) asks for another try at that time.
    """

    submission: Submission
    state: str
    result: bytes | None
    items_failed: int
    error: Mapping[str, Any] | None
    device_ms: float
    started: float
    finished: float
    timings: Mapping[str, float] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    worker: str = ""
    run_at: float | None = None
    result_blob: str | None = None
