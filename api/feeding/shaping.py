"""From a line to the job it asks for, and from how that ended to a line of the output or of the error file. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any
from uuid import UUID

from api.compat.dialect import UNEXPECTED, Failure
from api.compat.endpoints import Asked, Ended, Endpoint
from api.compat.openai import errors
from api.media import dumps
from catalog.errors import RoostError
from catalog.terms import Lane
from tasks.batches import PREFIX, TAG, Batch, line_job
from tasks.errors import InvalidRequest
from tasks.files import shown_id
from tasks.lines import Line
from tasks.messages import Submission


class Stop(Enum):
    """Why the rest of a batch is not done: the code of its lines in the error file, and what that says."""

    CANCELLED = ("batch_cancelled", "The batch was cancelled before this line was done.")
    EXPIRED = ("batch_expired", "The batch was not done within its completion window.")


@dataclass(frozen=True, slots=True)
class Shaped:
    """A line of a file, and which file it belongs to."""

    ok: bool
    data: bytes


def asked_for(batch: Batch, endpoint: Endpoint, line: Line) -> Asked:
    """The job of a line: bulk work, to be found by the tag of its batch. Raises what the endpoint refuses with."""
    if line.body.get("stream"):
        raise InvalidRequest("'stream' is not for batches; leave it out.", param="stream")
    asked = endpoint.to_job(line.body)
    own = asked.raw.get("tags", [])
    tags = [*own, TAG + shown_id(PREFIX, batch.id)] if isinstance(own, list) else own
    return replace(asked, raw={**asked.raw, "lane": Lane.BULK.value, "tags": tags})


def as_line(job: Submission, batch: Batch, line: int) -> Submission:
    """The submission under the id of its line, wanted until the batch's window closes, and kept until it is read."""
    closes = batch.expires_at.timestamp()
    return replace(
        job,
        id=line_job(batch.id, line),
        deadline=closes if job.deadline is None else min(job.deadline, closes),
        retention_s=int(max(closes - job.created, 0)) + _UNTIL_READ_S,
        # It is there for the feeder to read. What comes of it goes with its part, whatever its line asked for.
        keep=True,
    )


_UNTIL_READ_S = 30 * 86_400
"""Longer than any outage: a part frees its jobs itself, once it has read them."""


def succeeded(batch: Batch, line: Line, endpoint: Endpoint, ended: Ended) -> Shaped:
    """The output of a job that succeeded; an error line if its reply cannot be made."""
    try:
        body = endpoint.to_reply(ended, line.body)
    except RoostError as error:
        return failed(batch, line, Failure.of(error))
    return Shaped(True, _written(batch, line, {"status_code": 200, "body": body}, None))


def failed(batch: Batch, line: Line, failure: Failure) -> Shaped:
    """The error line of a request that was refused, or whose job failed."""
    response = {"status_code": errors.status_of(failure), "body": errors.body_of(failure)}
    return Shaped(False, _written(batch, line, response, None))


def stopped(batch: Batch, line: Line, stop: Stop) -> Shaped:
    """The error line of a request that was not done."""
    code, message = stop.value
    return Shaped(False, _written(batch, line, None, {"code": code, "message": message}))


def unexpected(batch: Batch, line: Line) -> Shaped:
    """The error line of a request at which the service itself failed."""
    return failed(batch, line, UNEXPECTED)


def _written(batch: Batch, line: Line, response: Mapping[str, Any] | None, error: Mapping[str, Any] | None) -> bytes:
    job: UUID = line_job(batch.id, line.number)
    told = None if response is None else {"request_id": str(job), **response}
    data = dumps({"id": f"batch_req_{job.hex}", "custom_id": line.custom_id, "response": told, "error": error})
    return _BREAKS.sub(lambda found: _ESCAPED[found[0]], data) + b"\n"


_ESCAPED = {mark.encode(): b"\\u%04x" % ord(mark) for mark in "\x85\u2028\u2029"}
"""Some readers take these for the end of a line. JSON has them in texts alone, where they can be escaped."""

_BREAKS = re.compile(b"|".join(_ESCAPED))
