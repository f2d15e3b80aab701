"""One endpoint of another service as a pair of pure functions, which its route and batches of lines share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.jobs import Job


@dataclass(frozen=True, slots=True)
class Asked:
    """A request in native form: `raw` is a body of POST /v1/jobs.

    `names` says how its fields are named in the body that it was made of, so that errors name what the caller wrote:
    `{"items": "input", "options.dimensions": "dimensions"}`. The longest beginning that fits wins.
    """

    raw: Mapping[str, Any]
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that succeeded: its rows as they are stored (`tasks.results`), of a score its ranking, and their bytes."""

    job: Job
    rows: list[dict[str, Any]]
    scores: Sequence[Mapping[str, Any]] | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How an endpoint reads a body and writes a reply. Both are pure.

    `to_job` raises an error that names the field; `to_reply` makes the reply's body of the job's end and the body that
    was sent, and raises the error of an item where its reply has no room for one.
    """

    path: str
    to_job: Callable[[Mapping[str, Any]], Asked]
    to_reply: Callable[[Ended, Mapping[str, Any]], dict[str, Any]]
