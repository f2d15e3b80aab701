"""Calls whose wait ended before their job did: made again, they find it."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import orjson

from tasks.messages import Submission

MOST_UNANSWERED = 4096


class Unanswered:
    """Jobs of this process whose callers were told to come again, by what was asked. The oldest are forgotten."""

    def __init__(self, most: int = MOST_UNANSWERED) -> None:
        self._jobs: OrderedDict[bytes, Submission] = OrderedDict()
        self._most = most

    def put(self, job: Submission) -> None:
        """The caller of this job was sent away."""
        self._jobs[_meaning(job)] = job
        while len(self._jobs) > self._most:
            self._jobs.popitem(last=False)

    def take(self, job: Submission) -> Submission | None:
        """The earlier job that asks for the same, given once."""
        return self._jobs.pop(_meaning(job), None) if self._jobs else None


def _meaning(job: Submission) -> bytes:
    """What makes two calls the same."""
    said = orjson.dumps([job.caller, job.verb, job.model, job.options, job.lane], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(said + job.inputs).digest()
