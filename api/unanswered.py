"""Calls whose wait ended before their job did: made again, they find it."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import replace

import orjson

from tasks.messages import Submission

MOST_UNANSWERED = 4096
KEPT_S = 900.0
"""Whoever was told to come again has come by then; clients of the peer try so long."""


class Unanswered:
    """Jobs of this process whose callers were told to come again, by what was asked. The oldest are forgotten."""

    def __init__(self, most: int = MOST_UNANSWERED) -> None:
        self._jobs: OrderedDict[bytes, tuple[float, Submission]] = OrderedDict()
        self._most = most

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def put(self, mark: bytes, job: Submission, now: float) -> None:
        """The caller of this job was sent away at `now`, in seconds. What the job reads is not kept here."""
        self._jobs[mark] = (now, replace(job, inputs=b""))
        self._jobs.move_to_end(mark)
        while len(self._jobs) > self._most:
            self._jobs.popitem(last=False)

    def take(self, mark: bytes, now: float) -> Submission | None:
        """The earlier job that asks for the same, given once, unless it was long ago."""
        since, job = self._jobs.pop(mark, (0.0, None))
        return job if job is not None and now - since <= KEPT_S else None


def mark_of(job: Submission) -> bytes:
    """What makes two calls the same."""
    said = orjson.dumps([job.caller, job.verb, job.model, job.options, job.lane], option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(said)
    digest.update(job.inputs)
    return digest.digest()
