"""Requests and replies as plain data, and what a reply's body says. Pure: nothing here opens a connection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack

from roost.errors import RoostError, UnexpectedReply, refusal

MSGPACK = "application/msgpack"
JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `wait_s` is how long the server may take on purpose; `again` says that it may be sent twice.

    The body is bytes, or the file that holds them.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Path | None = None
    wait_s: float = 0.0
    again: bool = True
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back; `at` is when, on the driver's monotonic clock. A streamed reply's body is read piece by piece."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def retry_after_s(self) -> float | None:
        """What Retry-After says in seconds; None if there is none, or a date."""
        try:
            return max(0.0, float(self.headers.get("retry-after", "")))
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Broken:
    """No reply: the connection was lost, or never made. `unsent` says that the server has not seen the request.

    `server` is its address; `unmet` says that nobody there has ever answered this client.
    """

    reason: str
    at: float
    unsent: bool = False
    server: str = "the server"
    unmet: bool = False


def packed(value: object) -> bytes:
    """A body in msgpack, in which files are bytes."""
    return bytes(msgpack.packb(value))


def decoded(reply: Reply) -> Any:
    """The body of a reply, in either form. Raises UnexpectedReply."""
    try:
        if reply.headers.get("content-type", "").partition(";")[0].strip() == MSGPACK:
            return msgpack.unpackb(reply.body)
        return json.loads(reply.body)
    except (ValueError, msgpack.UnpackException):
        raise UnexpectedReply(
            f"The answer ({reply.status}) is neither JSON nor msgpack; is this the address of a Roost server?",
            status=reply.status,
        ) from None


def told_error(reply: Reply) -> Mapping[str, Any] | None:
    """The error that a body in the service's own envelope tells; None for any other body."""
    try:
        body = decoded(reply)
    except UnexpectedReply:
        return None
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) and "code" in error else None


def failure(reply: Reply) -> RoostError:
    """The error of a reply with an error status."""
    if error := told_error(reply):
        return refusal(reply.status, error)
    return UnexpectedReply(f"The answer is {reply.status} without a reason.", status=reply.status)


def checked(reply: Reply) -> dict[str, Any]:
    """The body of a reply that tells of no error. Raises RoostError."""
    if reply.status >= 400:
        raise failure(reply)
    body = decoded(reply)
    if not isinstance(body, dict):
        raise UnexpectedReply("The answer is not an object; is this a Roost server?", status=reply.status)
    return body
